"""A learner's own texts in a profile: which files are taken, and what becomes of them."""

import gzip
import json
from pathlib import Path

import pytest
from course_lib.corpus import products
from course_lib.corpus.report import load_report
from course_lib.errors import CourseError, UsageError

PROFILE = "extends: tiny\ncorpus: {{sources: {{webtext: files, files: [{}]}}}}\n"
TEXTS = [
    "猫は朝から庭で遊んでいた。日が高くなると、木のかげに入って昼まで眠った。夕方になると目をさまし、台所の前で鳴いて、魚がほしいと言った。"
    "\n\n夜には窓のそばにすわり、月を見ながら静かにしていた。それから家の人の足もとで丸くなった。",
    "駅前の本屋は古い店で、二階には小さな喫茶店がある。店の主人は毎朝五時に起きて、棚の本を一冊ずつふいている。雨の日には客が少ないので、"
    "主人は奥のいすに座って昔の小説を読む。",
]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with a profile `mine.yaml`, which takes texts/*.jsonl and more.txt.gz."""
    folder = tmp_path / "mine"
    (folder / "texts").mkdir(parents=True)
    (folder / "mine.yaml").write_text(PROFILE.format("texts/*.jsonl, more.txt.gz"))
    (folder / "texts/a.jsonl").write_text(json.dumps({"text": TEXTS[0]}) + "\n", encoding="utf8")
    (folder / "more.txt.gz").write_bytes(gzip.compress(TEXTS[1].encode()))
    monkeypatch.setenv("COURSE_PROFILE", str(folder / "mine.yaml"))
    monkeypatch.setenv("COURSE_WORKSPACE", str(tmp_path / "workspace"))
    return folder


def texts() -> list[str]:
    lines = (products.WEBTEXT.path() / products.DOCUMENTS).read_text(encoding="utf8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def test_files_of_both_kinds_become_documents(own: Path) -> None:
    assert texts() == [TEXTS[0].replace("\n\n", "\n"), TEXTS[1]]
    report = load_report(products.WEBTEXT.folder / products.DOCUMENTS)
    assert report.source == "a.jsonl, more.txt.gz" and report.documents_out == 2


def test_faults_name_the_file(own: Path) -> None:
    (own / "texts/a.jsonl").write_text('{"txt": 1}\n')
    with pytest.raises(CourseError, match=r"texts/a\.jsonl, line 1"):
        texts()
    (own / "texts/a.jsonl").write_text('{"text": "短い。"}\n')
    (own / "more.txt.gz").write_bytes(gzip.compress("これも短い。".encode()))
    with pytest.raises(CourseError, match=r"no document left of 2 \(too_short 2\)"):
        texts()
    (own / "texts/a.jsonl").rename(own / "texts/a.docx")
    with pytest.raises(UsageError, match=r"texts/\*\.jsonl matches no file"):
        texts()
    (own / "mine.yaml").write_text(PROFILE.format("texts/*"))
    with pytest.raises(UsageError, match=r"a\.docx: is neither"):
        texts()
