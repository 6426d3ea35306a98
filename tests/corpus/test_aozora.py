"""Works of Aozora Bunko: notation, header, colophon, rights, orthography, copies, what is held out, bad archives."""

import zipfile
from collections import Counter
from pathlib import Path

import orjson
import pytest
from course_lib.corpus import aozora
from course_lib.corpus.aozora import HELD_OUT, REPORT, TRAIN, extract_aozora, open_archive, pieces
from course_lib.corpus.aozora_notation import ACCENTS, GAIJI_FOUND, GAIJI_LOST, NOTES, READINGS, plain
from course_lib.corpus.aozora_work import (
    NO_COLOPHON,
    NO_HEADER,
    REPLACED_BYTES,
    UTF8,
    decode,
    is_japanese,
    is_new,
    persons,
    read_work,
)
from course_lib.corpus.config import AozoraConfig
from course_lib.corpus.report import CorpusReport
from course_lib.errors import CourseError
from course_lib.workspace import products as workspace

CLOCK = "cards/900001/files/1_ruby_1/1_ruby_1.txt"
MAP = "cards/900002/files/2_ruby_3/2_ruby_3.txt"
LETTER = "cards/900005/files/6_ruby_7/6_ruby_7.txt"
SAMPLE = workspace.data(f"aozora-sample/{CLOCK}").parents[4]
NOTHING_HELD_OUT = AozoraConfig(held_out_share=0)
SENTENCE = "朝になると、兄は窓をあけて、今日の風はどちらから吹いているのかを言った。"


def rows(path: Path) -> list[dict[str, str]]:
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def extracted(
    source: Path, folder: Path, settings: AozoraConfig = NOTHING_HELD_OUT, workers: int = 1
) -> tuple[dict[str, dict[str, str]], CorpusReport]:
    report = extract_aozora(source, folder, settings, workers)
    return {row["file"]: row for row in rows(folder / TRAIN)}, report


def taken(report: CorpusReport) -> dict[str, int]:
    return {reason: removed.count for reason, removed in report.removed.items()}


def archive(folder: Path, **files: str | bytes) -> Path:
    """Write an archive of files: {name: text}, in Shift_JIS, or bytes."""
    for name, content in files.items():
        path = folder / "cards/900009/files" / name / f"{name}.txt"
        path.parent.mkdir(parents=True)
        path.write_bytes(content if isinstance(content, bytes) else content.replace("\n", "\r\n").encode("cp932"))
    return folder


def work(text: str, title: str = "題", author: str = "見本太郎") -> str:
    return f"{title}\n{author}\n\n{text}\n\n\n底本：「見本」\n"


def paragraphs(word: str, number: int = 8) -> str:
    return "\n".join(
        f"　{word}の話の{n}番目で、{word}は{'とても' * n}遠くまで歩いて行って、夜に戻った。" for n in range(number)
    )


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("青空文庫《あおぞらぶんこ》と市ヶ谷《いちがや》", "青空文庫と市ヶ谷"),
        ("霧の｜ロンドン警視庁《スコットランドヤード》", "霧のロンドン警視庁"),
        ("値段｜数量", "値段｜数量"),
        ("※［＃「てへん＋劣」、第3水準1-84-77］る", "挘る"),
        ("※［＃「さんずい＋闊」、第4水準2-79-45、73-12］", "𤄃"),
        ("※［＃「口＋世」、U+546D、135-7］", "呭"),
        ("佐々※［＃二の字点、1-2-22］", "佐々〻"),
        ("※［＃半濁点付き平仮名か、1-4-87］", "か゚"),
        ("※［＃「女＋※［＃第3水準1-85-57］のつくり」、12-9］姉", "姉"),
        ("水の※［＃「土へん＋竒」、104-上-3］音", "水の音"),
        ("木※［＃始め二重山括弧、1-1-52］春※［＃終わり二重山括弧、1-1-53］", "木《春》"),
        ("青空［＃「青空」に傍点］です", "青空です"),
        ("名※［＃二の字点、1-2-22］［＃「名※［＃二の字点、1-2-22］」に傍点］だ", "名〻だ"),
        ("広場［＃「［広場］」はママ］で", "広場で"),
        ("［収録作品］", "［収録作品］"),
        ("［＃３字下げ］第一章［＃「第一章」は中見出し］\n［＃改ページ］\n終", "第一章\n終"),
        ("蓋に［＃割り注］大正［＃改行］川辺製［＃割り注終わり］と", "蓋に（大正川辺製）と"),
        ("被官（［＃割り注］家臣［＃割り注終わり］）、", "被官（家臣）、"),
        ("〔Sito^t qu'on le touche il re'sonne l'e'te'.〕", "Sitôt qu'on le touche il résonne l'été."),
        ("〔Ko/benhavn, franc,aise, oe&uvre, Humanita:t: ja〕", "København, française, œuvre, Humanität: ja"),
        ("参照〔本全集第一巻所収〕", "参照〔本全集第一巻所収〕"),
        ("〔b^〕", "〔b^〕"),
        ("しみ／″＼はる／＼", "しみ〴〵はる〳〵"),
        ("　一行\n\n　　　　＊　　＊　　＊\n「……」\n　１　", "一行\n「……」\n１"),
        ("名　　　前  x", "名　前 x"),
        ("│　丸　│　場所　│\n└────┘\n――線", "丸　場所\n――線"),
    ],
)
def test_notation(written: str, read: str) -> None:
    assert plain(written, Counter()) == read


def test_what_was_resolved_or_removed_is_counted() -> None:
    counts: Counter[str] = Counter()
    plain("主《あるじ》の※［＃二の字点、1-2-22］※［＃「土＋竒」］［＃改丁］〔e'te'〕", counts)
    assert [counts[name] for name in (READINGS, GAIJI_FOUND, GAIJI_LOST, NOTES, ACCENTS)] == [1, 1, 1, 1, 2]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (["鳥"], ("鳥", "", "", "", "")),
        (["蜜柑", "芥川龍之介"], ("蜜柑", "", "芥川龍之介", "", "芥川龍之介")),
        (["踊る地平線", "虹を渡る日", "谷譲次"], ("踊る地平線", "虹を渡る日", "谷譲次", "", "谷譲次")),
        (["骨", "グリム　Grimm", "矢崎源九郎訳"], ("骨", "", "グリム　Grimm", "矢崎源九郎訳", "矢崎源九郎訳")),
        (["鉄道", "DAS UNGLUCK", "マン", "実吉捷郎訳"], ("鉄道", "", "マン", "実吉捷郎訳", "実吉捷郎訳")),
        (
            ["宣言", "マルクス", "堺利彦訳", "幸徳秋水訳"],
            ("宣言", "", "マルクス", "堺利彦訳　幸徳秋水訳", "幸徳秋水訳"),
        ),
        (["朝", "アレン", "リリー編", "大久保訳"], ("朝", "", "アレン", "大久保訳", "大久保訳")),
        (["物語", "拾遺", "柳田国男編"], ("物語", "拾遺", "柳田国男編", "", "柳田国男編")),
        (["ナトキン", "ポッター", "おおくぼゆう　やく"], ("ナトキン", "", "ポッター", *["おおくぼゆう　やく"] * 2)),
        (["童話", "山本訳"], ("童話", "", "", "山本訳", "山本訳")),
    ],
)
def test_header(header: list[str], expected: tuple[str, ...]) -> None:
    found = persons(header)
    assert (found.title, found.subtitle, found.author, found.translator, found.byline) == expected


BLOCK = "【テキスト中に現れる記号について】\n\n《》：ルビ\n（例）主《あるじ》\n"


@pytest.mark.parametrize(
    "block",
    [
        f"\n{'-' * 55}\n{BLOCK}{'-' * 55}\n",
        # Without an empty line before it; with few hyphens; without a line before it; in other words.
        f"{'-' * 55}\n{BLOCK}{'-' * 55}\n",
        f"\n{'-' * 9}\n{BLOCK}{'-' * 9}\n",
        f"\n{BLOCK}{'-' * 55}\n",
        f"\n{'-' * 65}\n［表記について］\n●ルビは《》で示す。\n{'-' * 65}\n",
    ],
)
def test_block_that_explains_the_notation(block: str) -> None:
    found = read_work(f"題\n人\n{block}\n本文です。\n\n\n底本：「本」\n", Counter())
    assert (found.title, found.author, found.text) == ("題", "人", "本文です。")


def test_lines_of_hyphens_in_the_text_stay_its_own() -> None:
    found = read_work(f"題\n人\n\n一日目\n{'-' * 30}\n二日目\n{'-' * 30}\n三日目\n", Counter())
    assert found.text == "一日目\n二日目\n三日目"


@pytest.mark.parametrize(
    "line",
    ["底本：「本」", "底本:「本」", "　底本：「本」", "底本・初出：「本」", "底本「本」", "定本：「本」", "翻訳の底本：A", "［＃本文終わり］",
     f"{'=' * 66}底本：「本」", "入力者注\n・底本とした"],
)  # fmt: skip
def test_colophon(line: str) -> None:
    counts: Counter[str] = Counter()
    assert read_work(f"題\n人\n\n底本を見た。\n\n\n{line}\n1990年発行\n", counts).text == "底本を見た。"
    assert not counts[NO_COLOPHON]


def test_files_without_header_or_colophon_are_counted() -> None:
    counts: Counter[str] = Counter()
    found = read_work("一行目。\n二行目。", counts)
    assert (found.title, found.text, counts[NO_HEADER], counts[NO_COLOPHON]) == ("", "一行目。\n二行目。", 1, 1)
    long = "\n".join(f"{n}行目。" for n in range(20))
    assert read_work(f"{long}\n\n終。", counts).text == f"{long}\n終。"
    assert counts[NO_HEADER] == 2


@pytest.mark.parametrize(
    ("said", "is_public_domain"),
    [
        ("※この翻訳は「クリエイティブ・コモンズ 表示 2.1 日本 ライセンス」によって公開されています。", False),
        ("（https://creativecommons.org/licenses/by/4.0/deed.ja）", False),
        ("このファイルは、著作権者自らの意思により、青空文庫に収録されています。", False),
        ("このファイルは、著作権者の意思により、青空文庫に収録されています。", False),
        ("このファイルは、著作権継承者の意思により、青空文庫に収録されています。", False),
        ("※挿絵は著作権を考慮して省きました。\n制作にあたったのは、ボランティアの皆さんです。", True),
    ],
)
def test_rights(said: str, is_public_domain: bool) -> None:
    assert read_work(f"題\n人\n\n本文。\n\n\n底本：「本」\n{said}\n", Counter()).is_public_domain == is_public_domain
    assert read_work(f"題\n人\n\n本文。\n{said}\n\n\n底本：「本」\n", Counter()).is_public_domain


def test_rights_are_searched_in_the_text_of_a_file_without_colophon() -> None:
    assert not read_work("題\n人\n\n本文。\n\nクリエイティブ・コモンズ\n", Counter()).is_public_domain


@pytest.mark.parametrize(
    ("text", "new"),
    [
        (SENTENCE, True),
        ("雪の日であつた。祖母は繩をなつてゐたといふ。兎は寒くないでせうか。", False),
        # Few old spellings, as in a quotation or in ゝ; and a text whose small kana are large.
        (SENTENCE * 10 + "「さうでせう」", True),
        ("町をあるいて行つたら、犬がないて、きつと雨がふると言はれて、かへつて来た。", False),
        ("第一条　政府ハ之ヲ議会ニ提出スベシ。但シ緊急ノ場合ハ此ノ限リニアラズトス。っ", False),
        ("ただ、あめにうたれて、やまのかなたにきえた。っ" + "やうに" * 3, False),
    ],
)
def test_orthography(text: str, new: bool) -> None:
    assert is_new(text) == new


def test_texts_in_other_languages() -> None:
    assert is_japanese("これは The Book of Tea という、日本の茶の本である。")
    assert not is_japanese("The Book of Tea 茶の本")


def test_decoding() -> None:
    counts: Counter[str] = Counter()
    assert decode("①髙～あ\r\nい".encode("cp932"), counts) == "①髙～あ\nい"
    assert not counts[UTF8] and not counts[REPLACED_BYTES]
    assert decode("\ufeff鷗外".encode(), counts) == "鷗外"
    assert counts[UTF8] == 1
    assert decode(SENTENCE.encode("cp932") + b"\xeb", counts) == SENTENCE + "\ufffd"
    assert counts[REPLACED_BYTES] == 1
    assert decode(SENTENCE.encode("utf-16"), counts) is None
    assert decode(b"plain ASCII", counts) == "plain ASCII"
    assert counts[UTF8] == 1


def test_sample(tmp_path: Path) -> None:
    found, report = extracted(SAMPLE, tmp_path / "out")
    assert sorted(found) == [CLOCK, MAP, LETTER]
    assert taken(report) == {"too_short": 1, "copyrighted": 1, "old_orthography": 1, "copy": 1}
    assert report.documents_in == 7 and report.documents_out == 3
    assert report.characters_out == sum(len(row["text"].replace("\n", "")) for row in found.values())
    clock = found[CLOCK]
    assert list(clock) == ["text", "title", "subtitle", "author", "translator", "orthography", "file"]
    assert (clock["title"], clock["subtitle"], clock["author"]) == ("川べりの時計屋", "――冬の話――", "水瀬はる")
    assert "店の主は七十に近い老人で、名を滊車堂といった" in clock["text"]
    assert "裏蓋には（大正十年川辺製）と刻んで" in clock["text"] and "《春になったら窓をあけなさい》" in clock["text"]
    assert "丸　立ち止まった場所\n線　走った道" in found[MAP]["text"]
    assert not any(sign in row["text"] for row in found.values() for sign in "※｜〔＃")
    assert not any(" \n" in row["text"] or "\n\n" in row["text"] or "底本" in row["text"] for row in found.values())
    stored = orjson.loads((tmp_path / "out" / REPORT).read_bytes())
    assert stored == report.to_dict()
    assert stored["removed"]["copy"]["examples"][0]["note"].endswith("川べりの時計屋")
    assert not (tmp_path / "out" / HELD_OUT).read_bytes()


def test_what_is_left_out_can_be_asked_for(tmp_path: Path) -> None:
    settings = AozoraConfig(orthography="all", copyrighted=True, min_chars=1, held_out_share=0, max_repeated=1)
    found, report = extracted(SAMPLE, tmp_path / "out", settings)
    assert len(found) == 7 and not taken(report)
    assert {row["orthography"] for row in found.values()} == {"new", "old"}
    lamp = next(row for row in found.values() if row["translator"])
    assert (lamp["author"], lamp["translator"], lamp["subtitle"]) == ("アン・サンプル　Ann Sample", "見本太郎訳", "")
    old, report = extracted(SAMPLE, tmp_path / "old", AozoraConfig(orthography="old", held_out_share=0))
    assert [row["title"] for row in old.values()] == ["雪の兎"]
    assert taken(report)["new_orthography"] == 4


def test_same_output_from_a_zip_and_with_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aozora, "BATCH", 1000)
    with zipfile.ZipFile(tmp_path / "master.zip", "w") as packed:
        for path in sorted(SAMPLE.rglob("*.txt"), reverse=True):
            packed.write(path, f"aozorabunko_text-master/{path.relative_to(SAMPLE)}")
        packed.writestr("aozorabunko_text-master/LICENSE.txt", "no work")
        packed.writestr("__MACOSX/cards/900001/._1_ruby_1.txt", "no work")
    settings = AozoraConfig(piece_characters=150, held_out_share=0.3)
    extract_aozora(SAMPLE, tmp_path / "one", settings)
    extract_aozora(tmp_path / "master.zip", tmp_path / "other", settings, workers=2)
    for name in (TRAIN, HELD_OUT):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()
    assert not list(tmp_path.glob(".*.parts"))


def test_a_folder_inside_the_archive_gives_the_names_of_the_archive() -> None:
    assert list(open_archive(SAMPLE / "cards/900005").sizes) == [LETTER]


def test_order_is_by_a_hash_of_the_file(tmp_path: Path) -> None:
    source = archive(tmp_path / "in", **{f"w{n}": work(paragraphs(f"{n}{n}")) for n in range(20)})
    found, _ = extracted(source, tmp_path / "out")
    assert list(found) != sorted(found) and len(found) == 20


def test_copies(tmp_path: Path) -> None:
    one, two, three = (paragraphs(word) for word in ("兎", "亀", "猫"))
    source = archive(
        tmp_path / "in",
        collection=work(f"{one}\n{two}"),
        copy=work(one),
        # A quarter of its lines is in the collection, and short lines do not count.
        quotes=work(f"{three}\n" + "\n".join(two.split("\n")[:2])),
        short=work("\n".join(["「はい。」", "「いいえ。」"] * 40 + [SENTENCE])),
        short_too=work("\n".join(["「はい。」", "「いいえ。」"] * 40 + ["そして、" + SENTENCE])),
    )
    found, report = extracted(source, tmp_path / "out")
    assert [Path(name).stem for name in sorted(found)] == ["collection", "quotes", "short", "short_too"]
    assert taken(report) == {"copy": 1}
    assert report.removed["copy"].examples[0]["note"] == "1 題"


def test_held_out_by_a_list(tmp_path: Path) -> None:
    listed = tmp_path / "list.json"
    listed.write_bytes(orjson.dumps({"authors": ["早川つばき"], "files": [LETTER]}))
    found, report = extracted(SAMPLE, tmp_path / "out", AozoraConfig(held_out=listed))
    assert list(found) == [CLOCK]
    assert {row["file"] for row in rows(tmp_path / "out" / HELD_OUT)} == {MAP, LETTER}
    assert report.counts[aozora.HELD_OUT_WORKS] == 2 and report.documents_out == 3
    # A translation is held out by its author, too.
    listed.write_bytes(orjson.dumps({"authors": ["アン・サンプル　Ann Sample"]}))
    extract_aozora(SAMPLE, tmp_path / "out", AozoraConfig(held_out=listed, copyrighted=True))
    assert [row["translator"] for row in rows(tmp_path / "out" / HELD_OUT)] == ["見本太郎訳"]
    listed.write_bytes(orjson.dumps({"authors": ["だれか", ""]}))
    with pytest.raises(CourseError, match="no work of .* is by its authors"):
        extract_aozora(SAMPLE, tmp_path / "out", AozoraConfig(held_out=listed))
    listed.write_bytes(orjson.dumps({"authors": "早川つばき"}))
    with pytest.raises(CourseError, match="authors: found .*; allowed: a list"):
        extract_aozora(SAMPLE, tmp_path / "out", AozoraConfig(held_out=listed))


def test_held_out_by_a_hash_are_whole_authors(tmp_path: Path) -> None:
    # Also of an author whose works have several translators, who are the header's last line.
    works = {f"w{n}": work(paragraphs(f"{n}{n}"), author=f"人{n // 3}\n見本{n}訳") for n in range(30)}
    source = archive(tmp_path / "in", **works)
    extract_aozora(source, tmp_path / "out", AozoraConfig(held_out_share=0.4))
    train, other = ({row["author"] for row in rows(tmp_path / "out" / name)} for name in (TRAIN, HELD_OUT))
    assert train and other and not train & other


def test_pieces() -> None:
    lines = ["一" * 80, "二" * 80, "三" * 120, "四" * 80]
    assert pieces("\n".join(lines), None) == ["\n".join(lines)]
    assert pieces("\n".join(lines), 150) == ["\n".join(lines[:2]), "\n".join(lines[2:])]
    # A last piece that is short belongs to the one before.
    assert pieces("一" * 300 + "\n短い", 300) == ["一" * 300 + "\n短い"]
    assert pieces("一" * 300 + "\n" + "二" * 200, 300) == ["一" * 300, "二" * 200]


def test_pieces_have_what_is_known_of_the_work(tmp_path: Path) -> None:
    extract_aozora(SAMPLE, tmp_path / "out", AozoraConfig(piece_characters=200, held_out_share=0))
    cut = [row for row in rows(tmp_path / "out" / TRAIN) if row["file"] == CLOCK]
    whole = extracted(SAMPLE, tmp_path / "whole")[0][CLOCK]
    assert len(cut) == 2 and "\n".join(row["text"] for row in cut) == whole["text"]
    assert {row["title"] for row in cut} == {"川べりの時計屋"}


def test_a_killed_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aozora, "BATCH", 1000)
    extract_aozora(SAMPLE, tmp_path / "whole", NOTHING_HELD_OUT)
    read_batch = aozora._read_batch
    read: list[str] = []

    def killed(settings, batch):
        if len(read) == 3:
            raise KeyboardInterrupt
        read.append(batch[0])
        return read_batch(settings, batch)

    monkeypatch.setattr(aozora, "_read_batch", killed)
    with pytest.raises(KeyboardInterrupt):
        extract_aozora(SAMPLE, tmp_path / "out", NOTHING_HELD_OUT)
    assert not (tmp_path / "out").exists()
    before = set(read)
    read.clear()
    # The parts before the one that was interrupted are there, and fewer than three are left.
    extract_aozora(SAMPLE, tmp_path / "out", NOTHING_HELD_OUT)
    assert read and not before & set(read)
    for name in (TRAIN, HELD_OUT, REPORT):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_parts_of_other_settings_are_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(aozora, "_write", failing)
        with pytest.raises(KeyboardInterrupt):
            extract_aozora(SAMPLE, tmp_path / "out", NOTHING_HELD_OUT)
    found, _ = extracted(SAMPLE, tmp_path / "out", AozoraConfig(orthography="old", held_out_share=0))
    assert [row["title"] for row in found.values()] == ["雪の兎"]


def test_bad_archives(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(CourseError, match="no .txt file in it; allowed: a clone"):
        extract_aozora(tmp_path / "empty", tmp_path / "out")
    with pytest.raises(CourseError, match="nowhere: no such file"):
        extract_aozora(tmp_path / "nowhere", tmp_path / "out")
    packed = tmp_path / "a.zip"
    with zipfile.ZipFile(packed, "w") as file:
        file.write(SAMPLE / LETTER, LETTER)
    whole = packed.read_bytes()
    packed.write_bytes(whole[:-100])
    with pytest.raises(CourseError, match=r"a\.zip: not a zip, or a truncated one"):
        extract_aozora(packed, tmp_path / "out")
    packed.write_bytes(whole[:400] + b"??" + whole[402:])
    with pytest.raises(CourseError, match=r"a\.zip: broken at cards/900005/.*CRC"):
        extract_aozora(packed, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_files_that_are_no_works_are_counted(tmp_path: Path) -> None:
    source = archive(
        tmp_path / "in",
        utf16=SENTENCE.encode("utf-16"),
        utf8=work(paragraphs("兎")).encode(),
        english=work("The Book of Tea. " * 30),
        empty=b"",
        bare=paragraphs("亀"),
    )
    found, report = extracted(source, tmp_path / "out")
    assert sorted(Path(name).stem for name in found) == ["bare", "utf8"]
    assert taken(report) == {"unreadable": 1, "not_japanese": 1, "too_short": 1}
    assert [report.counts[name] for name in (UTF8, NO_HEADER, NO_COLOPHON)] == [1, 1, 1]
