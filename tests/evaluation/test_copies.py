"""Copied spans against all windows by hand: random texts, windows that cross a boundary, long and repeated copies."""

import random

import pytest
from course_lib.evaluation import copies
from course_lib.evaluation.copies import CopySettings
from course_lib.japanese import normalize


def by_hand(texts: list[str], training: list[str], length: int) -> tuple[int, int]:
    windows = [text[at : at + length] for text in texts for at in range(len(text) - length + 1)]
    return len(windows), sum(any(window in document for document in training) for window in windows)


def longest(texts: list[str], training: list[str]) -> int:
    return max(
        (stop - start)
        for text in texts
        for start in range(len(text) + 1)
        for stop in range(start, len(text) + 1)
        if any(text[start:stop] in document for document in training)
    )


@pytest.mark.parametrize("at_once", [1, 30, 1_000_000])
def test_random_texts_against_all_windows(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "AT_ONCE", at_once)
    rng = random.Random(at_once)
    for _ in range(30):
        groups, training = (
            [["".join(rng.choices("あい😀", k=rng.randint(0, 25))) for _ in range(rng.randint(1, 6))] for _ in range(2)]
            for _ in range(2)
        )
        found = copies.copies({0: groups[0], 1: groups[1]}, training[0], lengths=(3, 5, 6))
        for number, texts in enumerate(groups):
            for length in (3, 5, 6):
                expected = by_hand(texts, training[0], length)
                assert (found[number].windows[length], found[number].copied[length]) == expected
            size = longest(texts, training[0])
            assert len(found[number].longest) == (size if size >= 3 else 0)
            assert not found[number].longest or any(found[number].longest in document for document in training[0])
            assert (found[number].texts, found[number].characters) == (len(texts), sum(map(len, texts)))


def test_no_window_spans_two_documents_or_texts() -> None:
    text = "春はあけぼのやうやう白くなりゆく山ぎはすこし"
    found = copies.copies({"a": [text], "b": [text[:11], text[11:]]}, [text[:15], text[15:]])
    assert found["a"].copied == {20: 0, 30: 0, 50: 0} and found["a"].longest == ""
    assert found["b"].windows == {20: 0, 30: 0, 50: 0} and found["b"].share(20) is None
    assert copies.copies({"a": [text]}, [f"秋は夕暮{text}"])["a"].share(20) == 1


def test_a_copy_is_found_however_it_is_typed() -> None:
    written = "ＡＢＣ社は、東京〜大阪のあいだを走る特急を開業した。"
    training = ["きのう、ABC社は、東京～大阪の\nあいだを走る特急を開業した。きょうは雨。"]
    (found,) = copies.copies({"m": [written]}, training, normalize).values()
    assert found.longest == normalize(written) and found.share(20) == 1
    assert copies.copies({"m": [written]}, training)["m"].longest == ""


@pytest.mark.parametrize("at_once", [1, 30, 1_000_000])
def test_contaminated_texts_against_all_parts(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "AT_ONCE", at_once)
    rng = random.Random(at_once)
    for _ in range(30):
        texts, training = (["".join(rng.choices("あい😀", k=rng.randint(0, 12))) for _ in range(9)] for _ in range(2))
        found = copies.contaminated(texts, training, length=5)
        for text, part in zip(texts, found, strict=True):
            parts = [text[at : at + 5] for at in range(max(len(text) - 5, 0) + 1)]
            assert part == next((each for each in parts if each and any(each in other for other in training)), "")


def test_a_short_text_is_contaminated_as_a_whole_only() -> None:
    training = ["きのう、電車に乗る。\n帰りは歩く。", "猫が鳴く。"]
    texts = ["電車に乗る。帰り", "電車で行く。", "ＡＢＣ", "", "歩く。猫が"]
    assert copies.contaminated(texts, training, normalize) == ["電車に乗る。帰り", "", "", "", ""]
    assert copies.contaminated(texts, [*training, "ABC"], normalize)[2] == "ABC"
    long = "春はあけぼのやうやう白くなりゆく山ぎはすこしあかりて" * 2
    assert copies.contaminated([long], [f"「{long[1:51]}」"]) == [long[1:51]]
    assert copies.contaminated([long], [long[:49]]) == [""] and copies.contaminated([""], [long]) == [""]


def test_prompts_are_the_beginnings_of_the_first_long_documents() -> None:
    settings = CopySettings(texts=2, prompt=3)
    assert copies.prompts(["あいう", "あいうえ", "かきくけこ", "さしすせ"], settings) == [
        ("あいう", "え"),
        ("かきく", "けこ"),
    ]


def test_held_out_text_is_as_long_as_the_longest_text_of_its_prompt() -> None:
    written = {("m", "top-p 0.5"): ["ab", ""], ("m", "top-p 1"): ["abc", ""]}
    found = copies.beside_held_out(written, [("x", "12345"), ("y", "678")])
    assert found == written | {(copies.HELD_OUT, ""): ["123", ""]}


def test_the_table_names_the_longest_span() -> None:
    text = "春はあけぼのやうやう白くなりゆく山ぎはすこしあかりて"
    searched = copies.copies({"m": [text], copies.HELD_OUT: ["夏は夜"]}, [text])
    table = copies.table({"m": {"top-p 1": searched["m"]}, copies.HELD_OUT: {"": searched[copies.HELD_OUT]}})
    lines = table.splitlines()
    assert lines[2].split() == ["m", "top-p", "1", "1", "26", "100.00", "–", "–", "26"]
    assert lines[3].split() == ["held-out", "text", "1", "3", "–", "–", "–", "<", "20"]
    assert lines[-1] == f"m top-p 1: {text}"
