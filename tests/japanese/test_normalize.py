from time import process_time

import pytest
from course_lib.japanese import normalize
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("typed", "normal"),
    [
        ("ﾊﾝｶｸ ｶﾅ ﾊﾟｰﾃｨｰ", "ハンカクカナパーティー"),
        ("ＡＢＣ　１２３", "ABC 123"),
        ("スーーーパーーー〜〜〜", "スーパー"),
        ("か\u3099", "が"),
        ("１０〜２０人、1990年～2000年、〜だった〜", "10~20人、1990年~2000年、だった"),
        ("example.jp/~name", "example.jp/~name"),
        ("ＧＰＴ－２とＣＤ―ＲＯＭ", "GPT-2とCD-ROM"),
        ("ｷﾀ━━━!", "キター!"),
        ("－１０℃、気温は－１０℃", "-10℃、気温は-10℃"),
        ("882年－912年、東京－大阪、（クロン）－区", "882年-912年、東京-大阪、(クロン)-区"),
        ("まくら ― 本題", "まくら-本題"),
        ("(－_－)", "(-_-)"),
        ("だが――それ、舵手───一心に", "だが――それ、舵手――一心に"),
        ("東京〜大阪、古代 ～ 中世、A〜Z", "東京~大阪、古代~中世、A~Z"),
        ("東京〜ロンドン、パリ～ニース、（東京）〜高尾", "東京~ロンドン、パリ~ニース、(東京)~高尾"),
        ("5℃〜－3℃、10 〜 20、10時〜", "5℃~-3℃、10 ~ 20、10時"),
        ("うれし〜い、すご〜〜い、ラ〜メン、ウェ〜イ", "うれしい、すごい、ラメン、ウェイ"),
        ("そうだね〜今日は最高〜！残念〜(；ω；)学習〜 次", "そうだね今日は最高!残念(;ω;)学習次"),
        ("a\tb\u00a0c\u2003d\u200be", "a b c d e"),
        ("一行目\r\n二行目", "一行目\n二行目"),
        ("▁", "_"),
        ("①㈱Ⅳ", "①㈱Ⅳ"),  # what NFKC would change and this does not
        ("\ud800x", "x"),
    ],
)
def test_examples(typed: str, normal: str) -> None:
    assert normalize(typed) == normal


@given(st.text())
def test_result_has_no_white_space_but_single_spaces_and_line_breaks(text: str) -> None:
    normal = normalize(text)
    assert not [char for char in normal if char.isspace() and char not in " \n"]
    assert "▁" not in normal and "  " not in normal


NEIGHBOURS = "かハﾊｰー〜~－―━–-1１aＡé漢α\u3099\u309aﾞ゛\u200b 　。!／/（」%\n"


@given(st.text() | st.text(alphabet=NEIGHBOURS) | st.text(alphabet="〜－―- 　漢ハ1a"))
def test_normalizing_twice_changes_nothing(text: str) -> None:
    assert normalize(normalize(text)) == normalize(text)


@pytest.mark.parametrize("unit", ["〜", "~ ", "～ 　", "－", "―", "カ－", "1―", "ー", " ", "カ\u3099", "ﾊﾟ"])
def test_a_long_run_takes_linear_time(unit: str) -> None:
    def seconds(length: int) -> float:
        text = "あ" + unit * (length // len(unit))
        started = process_time()
        normalize(text)
        return process_time() - started

    seconds(1000)
    assert seconds(200_000) < 1.0, "20,000 waves took 3.4 s when each of them looked at all that follow"
