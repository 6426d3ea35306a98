"""The whole way from a file of web text to clean documents."""

import lzma
import random
from pathlib import Path

import orjson
import pytest
from course_lib.corpus.config import DedupConfig, WebtextConfig
from course_lib.corpus.report import CorpusReport
from course_lib.corpus.webtext import clean_webtext
from course_lib.errors import CourseError
from course_lib.workspace import products as workspace

from tests.corpus.planted import near_copy

RIVER = (
    "日曜の朝、近所の川まで散歩に出かけた。土手の草はもう刈られていて、乾いた匂いがした。\n"
    "橋の下で釣りをしている親子に会った。釣れますかと聞くと、父親は笑って首を横に振った。\n"
    "子どものほうは釣りよりも石を集めることに忙しい。帰り道、私のポケットにも石が三つ入っていた。"
)
BREAD = (
    "パンを焼くようになって三年がたちます。最初のころは、石のように固いものばかり出来上がりました。\n"
    "水の量を量らず、粉の袋も閉めずに置いていたのですから、うまくいくはずがありません。\n"
    "いまは温度計を使い、こねた時間も帳面につけています。それでも梅雨の時期だけは、毎年少し失敗します。"
)
TRAIN = (
    "終点の駅には、改札の代わりに木の箱が置いてあった。切符はここへ入れてください、と墨で書いてある。\n"
    "私のほかに降りたのは、大きな荷物を背負ったおばあさんが一人だけだった。\n"
    "次の列車は四時間後だという。私たちは待合室で、みかんを分け合って食べながら、冬の話をした。"
)
EXACT = DedupConfig(near_duplicates=False)


def clean(folder: Path, *documents: str, settings: WebtextConfig | None = None) -> tuple[dict[str, str], CorpusReport]:
    (folder / "in.txt").write_text("\n\n".join(documents) + "\n", encoding="utf8")
    report = clean_webtext(folder / "in.txt", folder / "out.jsonl", settings)
    rows = [orjson.loads(line) for line in (folder / "out.jsonl").read_bytes().splitlines()]
    assert all(list(row) == ["id", "text"] for row in rows)
    return {row["id"]: row["text"] for row in rows}, report


def taken(report: CorpusReport) -> dict[str, int]:
    return {reason: removed.count for reason, removed in report.removed.items()}


def balanced(report: CorpusReport) -> bool:
    groups = [removed.characters for group in (report.removed, report.lines) for removed in group.values()]
    documents = report.documents_out + sum(taken(report).values())
    return report.documents_in == documents and report.characters_in == report.characters_out + sum(groups)


def test_repeats_go_and_different_documents_stay(tmp_path: Path) -> None:
    copy = near_copy(BREAD, random.Random(0), 0.03, 0.05)
    spaced = RIVER.replace("。", "。 ").replace("\n", "\n　")
    cleaned, report = clean(tmp_path, RIVER, BREAD, "続きを読む", spaced, copy, TRAIN)
    assert cleaned == {"1": RIVER, "2": BREAD, "6": TRAIN}
    assert taken(report) == {"too_short": 1, "duplicate": 1, "near_duplicate": 1}
    assert report.removed["near_duplicate"].examples[0]["note"] == "like 2"
    assert report.removed["too_short"].examples == [{"id": "3", "text": "続きを読む", "note": "5"}]
    assert balanced(report)


def test_repeated_long_lines_go_and_short_ones_stay(tmp_path: Path) -> None:
    notice = "この連載は毎月第二金曜日に更新しています。感想をお待ちしています。"
    documents = [f"{text}\n「はい。」\n{notice}" for text in (RIVER, BREAD, TRAIN)]
    only = f"{notice}\n「はい。」\nきょうはお休みです。\n" + RIVER.split("\n")[0] + "\n" + BREAD.split("\n")[0]
    cleaned, report = clean(tmp_path, *documents, only, settings=WebtextConfig(dedup=EXACT))
    assert cleaned["1"] == documents[0]
    assert cleaned["2"] == f"{BREAD}\n「はい。」" and cleaned["3"] == f"{TRAIN}\n「はい。」"
    assert taken(report) == {"repeated_lines": 1} and report.lines["duplicate_line"].count == 2 + 3
    assert balanced(report)


def test_lines_are_cleaned(tmp_path: Path) -> None:
    dirty = RIVER.replace("\n", " \x00\r\n　").replace("散歩", "散\u200b歩\x07").replace("親子", "親子👨\u200d👧")
    cleaned, _ = clean(tmp_path, "\ufeff" + dirty)
    assert cleaned["1"] == RIVER.replace("親子", "親子👨\u200d👧")


def test_lines_that_are_not_utf8_are_skipped_and_counted(tmp_path: Path) -> None:
    lines = [line.encode() for line in RIVER.split("\n")]
    content = (
        b"\n".join([lines[0], "壊れた行".encode("cp932"), lines[1], b"\xed\xa0\x80", lines[2]])
        + b"\n\n"
        + BREAD.encode()
    )
    (tmp_path / "in.txt").write_bytes(content)
    report = clean_webtext(tmp_path / "in.txt", tmp_path / "out.jsonl")
    assert [orjson.loads(line)["text"] for line in (tmp_path / "out.jsonl").read_bytes().splitlines()] == [RIVER, BREAD]
    assert report.lines["invalid_utf8"].count == 2 and balanced(report)


def test_another_encoding_is_refused_by_name(tmp_path: Path) -> None:
    # ASCII and one stray line of UTF-8 do not make it UTF-8.
    lines = f"http://example.jp/\n{RIVER}\n\n{BREAD}\n".encode("euc_jp")
    (tmp_path / "in.txt").write_bytes(lines * 2 + RIVER.split("\n")[0].encode())
    with pytest.raises(CourseError, match="12 of the first 13 lines .*EUC-JP"):
        clean_webtext(tmp_path / "in.txt", tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_the_product_is_the_same_for_any_number_of_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("course_lib.corpus.repeats.WORTH_WORKERS", 0)
    chance = random.Random(3)
    stored = workspace.data("webtext-sample.txt.xz").read_bytes()
    sample = lzma.decompress(stored).decode(errors="replace").split("\n\n")
    documents = sample * 4 + [near_copy(text, chance) for text in sample * 4]  # several batches, repeats across them
    chance.shuffle(documents)
    (tmp_path / "in.txt.xz").write_bytes(lzma.compress("\n\n".join(documents).encode(), preset=0))
    products = []
    for workers in (1, 2):
        report = clean_webtext(tmp_path / "in.txt.xz", tmp_path / f"{workers}.jsonl", workers=workers)
        products.append(((tmp_path / f"{workers}.jsonl").read_bytes(), report.to_dict()))
    assert products[0] == products[1]
    assert 100 < report.documents_out < len(sample) and balanced(report)


def test_truncated_input_leaves_the_earlier_product(tmp_path: Path) -> None:
    chance = random.Random(4)
    documents = [near_copy(RIVER + BREAD + TRAIN, chance, 0.6, 0.7) for _ in range(1500)]
    stored = lzma.compress("\n\n".join(documents).encode())
    (tmp_path / "in.txt.xz").write_bytes(stored[: len(stored) * 2 // 3])
    target = tmp_path / "out.jsonl"
    target.write_bytes(b"earlier product")
    for workers in (1, 2):
        with pytest.raises(CourseError, match=r"in\.txt\.xz: truncated xz data near byte \d+"):
            clean_webtext(tmp_path / "in.txt.xz", target, workers=workers)
    assert target.read_bytes() == b"earlier product" and len([*tmp_path.iterdir()]) == 2


def test_what_holds_no_text_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\n \n\r\n")
    with pytest.raises(CourseError, match=r"a\.txt: .*no document in it"):
        clean_webtext(tmp_path / "a.txt", tmp_path / "out.jsonl")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_several_files_are_one_corpus(tmp_path: Path) -> None:
    texts = (RIVER, BREAD, RIVER, TRAIN)
    whole, _ = clean(tmp_path, *texts)
    for name, part in (("a.txt", texts[:2]), ("b.txt", texts[2:])):
        (tmp_path / name).write_text("\n\n".join(part) + "\n", encoding="utf8")
    report = clean_webtext([tmp_path / "a.txt", tmp_path / "b.txt"], tmp_path / "both.jsonl")
    assert (tmp_path / "both.jsonl").read_bytes() == (tmp_path / "out.jsonl").read_bytes()
    assert list(whole) == ["1", "2", "4"] and report.source == "a.txt, b.txt"
