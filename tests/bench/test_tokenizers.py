"""The comparison of tokenizers runs, with models of a few steps, and goes on where its table ends."""

import sys
from pathlib import Path

import pytest
from course_lib.notebooks import measured

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
        assert float(row["million characters"]) == pytest.approx(0.002, abs=0.0006)
        assert float(row["bits per character"]) > 4 and float(row["trigram"]) > 4
    assert float(rows[0]["lost"].rstrip("%")) > float(rows[1]["lost"].rstrip("%"))
    before = table.read_bytes()
    bench_tokenizers.main()
    assert table.read_bytes() == before
    assert capsys.readouterr().out.count("| unigram-words |") == 2


def test_the_stored_table_has_models_that_beat_the_trigram_on_equal_text() -> None:
    rows = measured.rows("subword/tokenizers")
    assert {row["tokenizer"] for row in rows} == {*bench_tokenizers.tokenizers(12_000)}
    assert max(row["million characters"] for row in rows) - min(row["million characters"] for row in rows) < 0.01
    assert all(row["bits per character"] < row["trigram"] for row in rows)
