"""Templates whose argument is the text: what stays in the sentence."""

import pytest
from course_lib.corpus.templates import shown
from course_lib.corpus.wikitext import to_text

SHOWN = [
    ("en|Grenada", "Grenada"),
    ("grc|Ἐρυθρὰ Θάλασσα", "Ἐρυθρὰ Θάλασσα"),
    ("zh|t=臺北|p=Táiběi|links=no", "臺北、Táiběi"),
    ("lang|en|text", "text"),
    ("langx|en|Mount Fuji", "英: Mount Fuji"),
    ("いつ範囲|date=2013年2月|現在まで", "現在まで"),
    ("仮リンク|表示|en|Shown|label=札", "札"),
    ("interlang|en|Narva|ナルヴァ", "ナルヴァ"),
    ("sfrac|3|1|2", "3 1/2"),
    ("frac|2", "1/2"),
    ("読み仮名 ruby不使用|富士山|ふじさん|別名", "富士山（ふじさん、別名）"),
    ("small2|a", "a"),
    ("convert|3776|m|ft|abbr=on", "3776 m"),
    ("convert|10|to|20|km2", "10–20 km²"),
    ("val|1.5|e=6|u=km", "1.5×10⁶ km"),
    ("weight|normal|(Gaborone)", "(Gaborone)"),
    ("by|1991年", "1991年"),
    ("生年月日と年齢|1990|4|1", "1990年4月1日"),
    ("IPA-fr|kanada|lang", "[kanada]"),
    ("audio|a.ogg|''Konungariket Sverige''", "''Konungariket Sverige''"),
    ("audio|a.ogg|発音", ""),
    ("拡張漢字|B|𡨸", "𡨸"),
    ("USA1912", "アメリカ合衆国"),
    ("flag|FIN", "フィンランド"),
    ("formatnum:1234567", "1,234,567"),
    ("chem|H|2|O", "H2O"),
    ("!", "|"),
    ("PAGENAME", "題"),
    ("small|1=a=b", "a=b"),
    ("sfn|山岡|2010|pp=27", ""),
    ("Infobox 国|名=a", ""),
    ("en", ""),
    ("ABC", ""),
    ("convert|", ""),
    ("", ""),
]


@pytest.mark.parametrize(("content", "text"), SHOWN)
def test_what_a_reader_sees(content: str, text: str) -> None:
    assert shown(content, "題") == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (
            "正式名称は、アラビア語では{{ar|دولة إرتريا}}。国名は{{la|Mare Erythraeum}}を意味する{{grc|Ἐρυθρὰ}}に由来。",
            "正式名称は、アラビア語ではدولة إرتريا。国名はMare Erythraeumを意味するἘρυθρὰに由来。",
        ),
        ("* {{TUV}}は、承認した。\n※{{BLR}}は承認していない。", "ツバルは、承認した。\n※ベラルーシは承認していない。"),
    ],
)
def test_no_hole_is_left_in_the_sentence(markup: str, text: str) -> None:
    assert to_text(markup) == text
