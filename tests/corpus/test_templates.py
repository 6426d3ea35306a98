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
    ("convert|5|ft|10|in|m", "5 ft 10 in"),
    ("convert|11|st|4|lb|kg|0|abbr=on", "11 st 4 lb"),
    ("convert|6|lb|8|oz", "6 lb 8 oz"),
    ("convert|1|mi|2|yd|3|ft|m|order=flip", "1 mi 2 yd 3 ft"),
    ("convert|10|x|20|x|30|cm", "10 × 20 × 30 cm"),
    ("convert|10|by|20|m2|sqft|0", "10 × 20 m²"),
    ("convert|100|±|5|kg/m3", "100±5 kg/m³"),
    ("convert|5|and|7|km|mi", "5 and 7 km"),
    ("convert|5+1/2|in", "5 1/2 in"),
    ("convert|5|ft|10|in|to|6|ft|1/2|in|m|2", "5 ft 10 in–6 ft 1/2 in"),
    ("convert|3|m|x|4|m|ft", "3 m × 4 m"),
    ("convert|20|mi|km|1", "20 mi"),
    ("convert|約5|km", "約5 km"),
    ("convert|100|ft|0", "100 ft"),
    ("convert|20|m3/s|cuft/s|1", "20 m³/s"),
    ("val|5|-|7|u=m", "5–7 m"),
    ("val|1.5|0.3", "1.5±0.3"),
    ("val|1.5|0.3|e=-6|ul=m", "(1.5±0.3)×10⁻⁶ m"),
    ("val|6.02|(12)|e=23|u=mol-1", "6.02(12)×10²³ mol⁻¹"),
    ("val|1.5|+0.3", "1.5±0.3"),
    ("val|11|22|33", "11 (+22/−33)"),
    ("val|11|+0.2|-0.3", "11 (+0.2/−0.3)"),
    ("val|12345.6789|fmt=commas|u=%", "12,345.6789%"),
    ("val|12345|fmt=gaps", "12345"),
    ("val|e=n", "×10^n"),
    ("val|p=~|9.8|u=m|up=s2", "~9.8 m/s²"),
    ("e|-3.5", "×10^-3.5"),
    ("sfrac|n+1|2", "(n+1)/2"),
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
    ("chem|SO|4|2-", "SO4²⁻"),
    ("chem|14|6|C", "¹⁴₆C"),
    ("chem|NH|4|+", "NH4⁺"),
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
