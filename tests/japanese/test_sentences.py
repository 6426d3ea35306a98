from time import process_time

import pytest
from course_lib.japanese import split_sentences
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("雨が降った。風も吹いた。", ["雨が降った。", "風も吹いた。"]),
        ("「そうですね。」と彼は言った。次の日。", ["「そうですね。」と彼は言った。", "次の日。"]),
        ("「「入れ子。」です。」と言う。次。", ["「「入れ子。」です。」と言う。", "次。"]),
        ("彼は（笑いながら。）去った。（終わり。）次。", ["彼は（笑いながら。）去った。", "（終わり。）", "次。"]),
        ("「閉じない。次の文。", ["「閉じない。", "次の文。"]),
        ("宛先はtaro.y@example.co.jpです。", ["宛先はtaro.y@example.co.jpです。"]),
        ("https://example.com/a.html?b=1を見て。次。", ["https://example.com/a.html?b=1を見て。", "次。"]),
        ("えーと……そうですね。まあ…いいか。", ["えーと……そうですね。", "まあ…いいか。"]),
        (
            "He said... well. Then Mr. Smith left. 彼は帰った。",
            ["He said... well.", "Then Mr. Smith left.", "彼は帰った。"],
        ),
        ("the U.S. now.彼は元気。", ["the U.S. now.", "彼は元気。"]),
        ("本当か？と聞いた。え？まさか！", ["本当か？と聞いた。", "え？", "まさか！"]),
        ("Yahoo!ニュースを見た。", ["Yahoo!ニュースを見た。"]),
        ("である．これは，例．", ["である．", "これは，例．"]),
        ("楽しかった（笑）。行きました！😊 またね♪", ["楽しかった（笑）。", "行きました！😊", "またね♪"]),
        ("雨だ。★次の話！☆☆また次。", ["雨だ。", "★次の話！", "☆☆また次。"]),
        ("やった！★ 次の話。☎03-1234。✨終わり！☆", ["やった！★", "次の話。", "☎03-1234。✨", "終わり！☆"]),
        ("終わりました．．．次は．．．ですが...また！", ["終わりました．．．", "次は．．．ですが...また！"]),
        (
            "えーと．．．そう．．．？次。「あの．．．」彼は．．．。次",
            ["えーと．．．そう．．．？", "次。", "「あの．．．」彼は．．．。", "次"],
        ),
        (
            "「え？」みたいな顔。「はい！」です。「いや！」ね。",
            ["「え？」みたいな顔。", "「はい！」です。", "「いや！」ね。"],
        ),
        ("「はい。」しかし彼は「え？」ほどなく言う。", ["「はい。」", "しかし彼は「え？」", "ほどなく言う。"]),
        ("行くぞ！ぐらいの気持ち。", ["行くぞ！ぐらいの気持ち。"]),
        ("モーニング娘。のコンサート", ["モーニング娘。のコンサート"]),
        ("今日は天気が\nいいです。散歩に\n行きました。", ["今日は天気がいいです。", "散歩に行きました。"]),
        ("彼は「今日は。\nいい日だ。」と言った。", ["彼は「今日は。いい日だ。」と言った。"]),
        ("歴史\n1877年に始まる。", ["歴史", "1877年に始まる。"]),
        ("見出しの\n\n本文。", ["見出しの", "本文。"]),
        ("材料は\n・卵\n・米", ["材料は", "・卵", "・米"]),
        ("We walked, and\nwe talked,\nthen left.", ["We walked, and", "we talked, then left."]),
        ("", []),
        ("。", ["。"]),
    ],
)
def test_examples(text: str, sentences: list[str]) -> None:
    assert split_sentences(text) == sentences


def squeeze(text: str) -> str:
    return "".join(text.split())


@given(st.text(alphabet=st.sampled_from(list("あ漢ア。、！？!?.…「」『』（）()a1 　\n・笑と😊")), max_size=60))
def test_nothing_is_lost_or_moved(text: str) -> None:
    sentences = split_sentences(text)
    assert squeeze("".join(sentences)) == squeeze(text)
    assert all(sentence.strip() == sentence != "" and "\n" not in sentence for sentence in sentences)


UNITS = ("「\n", "「。」", "」「", "．．．", "a.", "！★", "！（w", "。 　", "\u3099", "…", "・")


@pytest.mark.parametrize(
    ("unit", "length"), [("を\n", 1_000_000), ("あ（。）", 1_000_000), *((unit, 200_000) for unit in UNITS)]
)
def test_a_long_run_takes_linear_time(unit: str, length: int) -> None:
    text = "あ" + unit * (length // len(unit)) + "あ"
    started = process_time()
    split_sentences(text)
    seconds = process_time() - started
    assert seconds < 4, "1,000,000 characters took 7 s when each line or bracket copied all before it"
