"""The comparison of tokenizers runs, with models of a few steps, and goes on where its table ends."""

import sys
from pathlib import Path

import pytest

from tests.bench import bench_tokenizers


def test_each_tokenizer_has_a_row_and_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench_tokenizers", "--quick", "-o", str(tmp_path / "out"), "--only"]
    monkeypatch.setattr(sys, "argv", [*command, "bpe-recipe", "unigram-words"])
    bench_tokenizers.main()
    table = tmp_path / "out" / "tokenizers.csv"
    rows = bench_tokenizers.rows_of(table)
    assert [row["tokenizer"] for row in rows] == ["bpe-recipe", "unigram-words"]
    for row in rows:
        assert int(row["entries used"]) <= int(row["entries"]) == 4000
        assert 1 < float(row["characters per token"]) < 2
        # As many characters for each, up to one step of 256 tokens.
        assert float(row["million characters"]) == pytest.approx(0.002, abs=0.0005)
        assert float(row["bits per character"]) > float(row["trigram"]) > 4
    assert float(rows[0]["lost"].rstrip("%")) > float(rows[1]["lost"].rstrip("%"))
    before = table.read_bytes()
    bench_tokenizers.main()
    assert table.read_bytes() == before
    assert capsys.readouterr().out.count("| unigram-words |") == 2
