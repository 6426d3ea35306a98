from time import process_time

import pytest
from course_lib.japanese import normalize
from hypothesis import example, given
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
        ("うれし〜い、すご〜〜い、ラ〜メン、ウェ〜イ", "うれしーい、すごーい、ラーメン、ウェーイ"),
        ("え〜と、わ〜い！、すご～い、すご~い、ﾗ〜ﾒﾝ", "えーと、わーい!、すごーい、すごーい、ラーメン"),
        ("スーパ〜マン、チュ〜リップ、ラ〜ーメン", "スーパーマン、チューリップ、ラーメン"),
        ("じゃあね〜、ね〜。す 〜い、〜から〜まで", "じゃあね、ね。すい、からまで"),
        ("「〜は〜である」、最高〜すご〜い", "「はである」、最高すごーい"),
        ("ランチ〜ディナー、ﾊﾟﾘ〜ﾆｰｽ", "ランチ~ディナー、パリ~ニース"),
        ("リエージュ〜バストーニュ〜リエージュ", "リエージュ~バストーニュ~リエージュ"),
        ("そうだね〜今日は最高〜！残念〜(；ω；)学習〜 次", "そうだね今日は最高!残念(;ω;)学習次"),
        ("a\tb\u00a0c\u2003d\u200be", "a b c de"),
        ("一行目\r\n二行目", "一行目\n二行目"),
        ("▁", "_"),
        ("10⁻²⁷ kg、SO₄²⁻、xₙ₋₁、10⁺", "10⁻²⁷ kg、SO₄²⁻、xₙ₋₁、10⁺"),
        ("−１、a–b", "-1、a-b"),  # hyphens that are no superscripts
        ("¥1,000、￥１，０００、C:\\", "¥1,000、¥1,000、C:\\"),
        ("it’s ‘fine’, “good”", "it's 'fine', \"good\""),
        ("か゛、は゜、ワ゛、ゝ゛、か ゛、ウﾞ", "が、ぱ、ヷ、ゞ、が、ヴ"),
        ("あ゛あ゛っ、え゜、か゜、ﾞ、ｱﾞ、が゛", "あ゛あ゛っ、え゜、か゜、゛、ア゛、が゛"),
        ("あ\u3099、は\u309a", "あ\u3099、ぱ"),
        ("inter\u00adnational、foo\u200bbar、ab\ufeffcd、東\u200b京", "international、foobar、abcd、東京"),
        ("👨\u200d👩\u200d👧 family", "👨\u200d👩\u200d👧 family"),
        ("①㈱Ⅳ", "①㈱Ⅳ"),  # what NFKC would change and this does not
        ("\ud800x", "x"),
    ],
)
def test_examples(typed: str, normal: str) -> None:
    assert normalize(typed) == normal


@pytest.mark.parametrize(
    ("typed", "normal"),
    [
        # A Japanese neighbour is enough.
        ("日本 Python 会、Python 日本", "日本Python会、Python日本"),
        ("名は Владимир Ленин に由来、한국어 の 本", "名はВладимир Ленинに由来、한국어の本"),
        ("A ・ B、人 々 A、x 、y。 z「 q", "A・B、人々A、x、y。z「q"),
        ("ﾊﾟﾝ A ｶﾞ、スー ー", "パンAガ、スー"),
        ("A 𠮷 野、辻󠄀 Python、㈱ ABC ㌔ B", "A𠮷野、辻󠄀Python、㈱ABC㌔B"),
        ("か\u3099 x、x か\u3099", "がx、xが"),
        ("A ―― B", "A――B"),
        # Without one the space stays.
        ("Владимир Ильич Ленин", "Владимир Ильич Ленин"),
        ("Café de Paris、Đà Nẵng、Tōkyō Ōsaka", "Café de Paris、Đà Nẵng、Tōkyō Ōsaka"),
        ("cafe\u0301 de a\u0328\u0301 b", "cafe\u0301 de a\u0328\u0301 b"),
        ("대한민국 서울、Ελληνική Δημοκρατία", "대한민국 서울、Ελληνική Δημοκρατία"),
        ("جمهورية مصر العربية、กรุงเทพ มหานคร、हिन्दी भाषा", "جمهورية مصر العربية、กรุงเทพ มหานคร、हिन्दी भाषा"),
        ("5 × 3と10 ℃ 20、x → y、① ABC、OK… next", "5 × 3と10 ℃ 20、x → y、① ABC、OK… next"),
        ("5 * 3、a * b", "5 * 3、a * b"),
        ("10 ㎞ 20 ㎏ x、㏋ 5、① ㉑ ㊿ A", "10 ㎞ 20 ㎏ x、㏋ 5、① ㉑ ㊿ A"),
        ("10 ㎞ の道、A ㌔ B、C ㍻ D、E ㋿ F", "10 ㎞の道、A㌔B、C㍻D、E㋿F"),
        ("Hello 🎉 World 👍🏽 ok ❤️ x", "Hello 🎉 World 👍🏽 ok ❤️ x"),
        ("Ａ Ｂ　Ｃ、（Ａ） （Ｂ）", "A B C、(A) (B)"),
        ("  a   b　　c  ", "a b c"),
    ],
)
def test_a_space_stays_unless_it_is_beside_a_japanese_character(typed: str, normal: str) -> None:
    assert normalize(typed) == normal


@pytest.mark.parametrize("end", ["\n", "\r\n", *"\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"])
def test_every_line_break_is_one_newline(end: str) -> None:
    assert normalize(f"Ａ{end}b {end}{end}　c{end}") == "A\nb\n\nc\n"
    assert normalize(f"あ{end}い") == "あ\nい"


def test_other_white_space_breaks_no_line() -> None:
    assert normalize("a\tb\x1fc\u3000d\n\re") == "a b c d\n\ne"


@given(st.text())
def test_result_has_no_white_space_but_single_spaces_and_line_breaks(text: str) -> None:
    normal = normalize(text)
    assert not [char for char in normal if char.isspace() and char not in " \n"]
    assert "▁" not in normal and "  " not in normal


NEIGHBOURS = (
    "かハﾊｰー〜~－―━–-1１aＡé漢α\u3099\u309aﾞ゛゜はワｳ⁻₋¥￥‘×한я*\u0301\ufe0f𠮷\u00ad\u200b\r\x85 　。!／/（」%\n"
)
KANA_AND_WAVES = "〜~ァカンーｶﾟﾞかを 　"


@given(
    st.text() | st.text(alphabet=NEIGHBOURS) | st.text(alphabet="〜－―- 　漢ハ1a") | st.text(alphabet=KANA_AND_WAVES)
)
@example("—— ——")
@example("——〜——")
def test_normalizing_twice_changes_nothing(text: str) -> None:
    assert normalize(normalize(text)) == normalize(text)


@pytest.mark.parametrize(
    "unit",
    ["〜", "~ ", "～ 　", "－", "―", "カ－", "1―", "ー", " ", "カ\u3099", "ﾊﾟ", "か〜", "〜か", "я ", "か ", "ﾞ", "\r"],
)
def test_a_long_run_takes_linear_time(unit: str) -> None:
    def seconds(length: int) -> float:
        text = "あ" + unit * (length // len(unit))
        started = process_time()
        normalize(text)
        return process_time() - started

    seconds(1000)
    # 0.1 to 0.5 s on a quiet machine. When each wave looked at all that follow, 20,000 took 3.4 s.
    assert seconds(200_000) < 10
