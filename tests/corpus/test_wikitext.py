"""Markup → text, rule by rule, and the bundled dump as a whole."""

import bz2
import re
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from functools import partial
from xml.etree import ElementTree

import pytest
from course_lib.corpus.report import characters
from course_lib.corpus.wikitext import to_text
from course_lib.workspace import products as workspace

CASES = [
    (
        "'''富士山'''（ふじさん、{{lang-en|Mount Fuji}}）は[[日本]]の山。",
        "富士山（ふじさん、英: Mount Fuji）は日本の山。",
    ),
    ("{{Infobox 山\n|名称={{lang|ja|富士山}}\n|標高={{convert|3776|m}}\n}}\n本文です。", "本文です。"),
    ("本文<ref name=\"a\">{{Cite book|title=[[本]]}}</ref>です<ref name='a' />。", "本文です。"),
    ('前\n{| class="wikitable"\n|-\n| a || b\n|\n{|\n| 内側\n|}\n|}\n後', "前\n後"),
    ("前\n{| \n| 閉じない表\n\n== 次 ==\n後", "前\n\n次\n後"),
    ("[[ファイル:A.jpg|thumb|説明に[[リンク|別名]]と{{small|小}}<ref>x</ref>]]本文。", "本文。"),
    (
        "[[東京#歴史|歴史]]と[[東京]]と[[:Category:山|山]]と[[:en:Tokyo]]。[[Category:都市]][[en:Tokyo]]",
        "歴史と東京と山とen:Tokyo。",
    ),
    ("[[ローマ (曖昧さ回避)|]]と[[a_b]]", "ローマとa b"),
    ("[https://example.com 説明]と https://example.com/a?b=c です。", "説明と です。"),
    ("<!-- 消す\n== 見出しではない == -->残る。", "残る。"),
    ("記法は<nowiki>[[リンク]]と{{t}}</nowiki>です。", "記法は[[リンク]]と{{t}}です。"),
    ("式<math>E = mc^2</math>と<math>\\frac{a}{b}</math>。", "式E = mc^2と〈数式〉。"),
    ("水はH<sub>2</sub>O、{{ルビ|山|やま}}、一行<br />二行。", "水はH2O、山（やま）、一行\n二行。"),
    ("10<sup>-3</sup>m<sup>2</sup>と{{sup|14}}C、n<sup>k</sup>", "10⁻³m²と¹⁴C、n^k"),
    ("100&nbsp;km&mdash;A&amp;B&amp;nbsp;C&#12354;", "100 km—A&B Cあ"),
    ("<gallery>\nA.jpg|[[x]]\n</gallery>本文", "本文"),
    ('<syntaxhighlight lang="c">\nint main(){{ }}\n</syntaxhighlight>\n本文', "本文"),
    ("空の（{{lang|xx}}、）と（、読み）と「{{x}}」と（『{{x}}』）。", "空のと（、読み）とと。"),
    (
        "== 空 ==\n== 歴史 ==\n=== 古代 ===\n* 項目[[一]]\n** 二\n; 語：説明\n# 三",
        "歴史\n\n古代\n項目一\n二\n語：説明\n三",
    ),
    (
        "== 本文 ==\n文。\n== 脚注 ==\n{{Reflist}}\nhttps://a.example\n=== 注 ===\nx\n== 次 ==\n文二。",
        "本文\n文。\n\n次\n文二。",
    ),
    ("{{仮リンク|表示|en|Shown}}と{{仮リンク|a|en|b|label=札}}と{{要出典範囲|主張|date=2024}}。", "表示と札と主張。"),
    ("閉じない{{template|x\n\n== 見出し ==\n本文[[リンク。", "閉じないtemplate|x\n\n見出し\n本文リンク。"),
    (
        "[mailto:a@example.jp 事務局]、東京[/toːkjoː/]、[[std::vector]]、[[s:en:Foo]]",
        "事務局、東京[/toːkjoː/]、std::vector、s:en:Foo",
    ),
    ("文である<ref>x</ref>。。次<br />、続き。\n: * 項目", "文である。次\n続き。\n項目"),
    ("A &lt; B は <3 と違う。", "A < B は <3 と違う。"),
    ("前\n<table class=a><tr><td>升<table><tr><td>内</table>目</td></tr></TABLE >\n後", "前\n後"),
    ("前\n<table>\n{|\n| a\n</table>\n後", "前\n後"),
    ("前\n{{(!}} class=a\n{{!}} b\n{{!)}}\n後", "前\n後"),
    ("[[{{lang|fr|Paris}}|{{nowrap|花の都}}]]と[[[a]]]と[[a|b[[c|d]]e", "花の都と[a]とa|bde"),
    ("記法<NOWIKI>''a''</nowiki>と<nowiki />終<nowiki>閉じない。", "記法''a''と終閉じない。"),
    ("&#" + "1" * 5000 + ";字と&amp;#" + "1" * 5000 + ";A", "字とA"),
    ("=== 見出し ==\n文。\n=\n===\n= 後 =\n文。", "= 見出し\n文。\n\n後\n文。"),
    ("", ""),
    # Signs that templates, <nowiki>, formulas and character references show.
    (
        "直線は{{math|''y'' {{=}} ''ax'' + ''b''}}で、{{math|{{!}}''z''{{!}} &lt; 1}}、{{nowrap|幅 {{=}} 3}}である。",
        "直線はy = ax + bで、|z| < 1、幅 = 3である。",
    ),
    (
        "甲{{lang|fr|a{{=}}b}}、{{small|価格{{=}}100円}}、{{読み仮名|A{{!}}B|エービー}}",
        "甲a=b、価格=100円、A|B（エービー）",
    ),
    (
        "深い{{small|{{nowrap|{{lang|en|a{{=}}b{{!}}c{{!!}}d}}}}}}と{{quote|{{en|1=x=1}}}}",
        "深いa=b|c||dとx=1",
    ),
    ("{{仮リンク|A{{=}}B|en|A=B}}と{{仮リンク|a|en|b|label=札{{=}}名}}", "A=Bと札=名"),
    (
        '{{small|<span style{{=}}"color:red">赤</span>}}い[[A{{!}}別名]]と[[ファイル:a.jpg{{!}}thumb]]。',
        "赤い別名と。",
    ),
    (
        "{{small|<nowiki>a|b=c</nowiki>}}と{{small|<math>|x|=1</math>}}と{{lang|en|a&#124;b&#x3D;c}}。",
        "a|b=cと|x|=1とa|b=c。",
    ),
    (
        "[[&#91;Co&#93;]]、[[C&#35;]]、[[甲|乙&#124;丙]]、&#91;&#91;丁&#93;&#93;、&#123;&#123;t&rcub;&rcub;",
        "[Co]、C#、乙|丙、[[丁]]、{{t}}",
    ),
    (
        "<nowiki>* 星</nowiki>\n<nowiki/># 番号\n&#42; 印\n<nowiki>== 節 ==</nowiki>",
        "* 星\n# 番号\n* 印\n== 節 ==",
    ),
    (
        "式は<nowiki>{{=}}</nowiki>と{{((}}t{{))}}、<nowiki>https://a.example/?b=cと''c''=1</nowiki>です。",
        "式は{{=}}と{{t}}、と''c''=1です。",
    ),
    ("前\n{{{!}} class=a\n{{!-}}\n{{!}} b {{!!}} c\n{{!}}}\n後", "前\n後"),
    ("価格=100円、A|B、{{small|a|b}}、{{small|x=1}}終", "価格=100円、A|B、a、終"),
    # Superscripts and subscripts.
    (
        "10<sup>-3.5</sup>、10<sup>100000</sup>、10<SUP>&minus;''n''</SUP>、x<sup>1.5</sup>2",
        "10^-3.5、10^100000、10^−n、x^(1.5)2",
    ),
    (
        "x<sup>n+1</sup>、2<sup>2n</sup>、(a+b)<sup>n</sup>、''e''<sup>''ix''</sup>、&alpha;<sup>1/2</sup>",
        "x^(n+1)、2^(2n)、(a+b)^n、e^(ix)、α^(1/2)",
    ),
    (
        "2<sup>3<sup>2</sup></sup>、2<sup>2<sup>n</sup></sup>、f<sup>(n)</sup>、{{mvar|x}}{{sup|k}}、sin<sup>n</sup>",
        "2^(3²)、2^(2^n)、f^(n)、x^k、sin^n",
    ),
    (
        "1<sup>st</sup>、n<sup>th</sup>、XX<sup>e</sup>、1<sup>ère</sup>、No<sup>o</sup>、20<sup>o</sup>C",
        "1st、nth、XXe、1ère、Noo、20oC",
    ),
    (
        "東京<sup>1)</sup>、東京<sup>[注 1]</sup>、Rome<sup>a)</sup>、Rome<sup>a</sup>、X<sup>TM</sup>、人<sup>n</sup>、値<sup>*</sup>",
        "東京1)、東京[注 1]、Romea)、Romea、XTM、人n、値*",
    ),
    (
        "5<sup>1)</sup>、注<sup>注1</sup>5人、10<sup>1,000</sup>、10<sub>a</sub>、10<sup>3<sup>5",
        "5¹)、注注¹5人、10^1,000、10a、10 3 5",
    ),
    (
        "SO<sub>4</sub><sup>2−</sup>、Ca<sup>2+</sup>、Na<sup>+</sup>、C<sub>6</sub>H<sub>12</sub>O<sub>6</sub>",
        "SO4²⁻、Ca²⁺、Na⁺、C6H12O6",
    ),
    (
        "<sup>14</sup><sub>6</sub>C、m<sup>2</sup>、[[km|km<sup>2</sup>]]、'''10'''<sup>3</sup>、年<sup>1</sup>",
        "¹⁴₆C、m²、km²、10³、年¹",
    ),
    (
        "1010<sub>2</sub>、(101)<sub>2</sub>、Ca(OH)<sub>2</sub>、log<sub>2</sub>8、log<sub>10</sub>x、x<sub>1</sub>、E<sub>a</sub>、10{{sub|2}}、a<sub>1</sub><sub>2</sub>",
        "1010₂、(101)₂、Ca(OH)2、log₂8、log₁₀x、x1、Ea、10₂、a1₂",
    ),
    (
        "2<sup>82,589,933</sup>−1、2<sup>1,2</sup>、5<sup>h</sup> 55<sup>m</sup>10.3<sup>s</sup>、2<sup>h</sup>個、2<sup>a</sup>3<sup>b</sup>",
        "2^82,589,933−1、2¹,²、5h 55m10.3s、2^h個、2^(a)3^b",
    ),
    ("lim<sub>x→0</sub>、log<sub>1.5</sub>3、max<sub>1≤i≤n</sub>", "limx→0、log₁.₅3、max1≤i≤n"),
    # Fractions behind a digit.
    (
        "3{{sfrac|1|2}}、'''3'''{{frac|1|2}}個、{{sfrac|1|2}}5、計{{frac|2}}、5<sup>{{sfrac|1|2}}</sup>",
        "3 1/2、3 1/2個、1/2 5、計1/2、5^(1/2)",
    ),
]


@pytest.mark.parametrize(("markup", "text"), CASES)
def test_rule(markup: str, text: str) -> None:
    assert to_text(markup, drop_sections=frozenset({"脚注"})) == text


OPENINGS = {
    "{{": "}}", "{{a|": "}}", "{{small|y": "}}", "{{{": "}}}", "{{ipa-fr|": "}}", "[[": "]]", "[[a|": "]]", "[[a|y": "]]", "[[a (": "|]]",
    "{|\n": "\n|}", "\n{|\n|a\n\n": "\n|}", "\n{|x": "|y", "<table>": "</table>", "<ref>": "</ref>", "<ref name=a>": "</references>", "<!--": "-->", "-{": "}-", "'''": "'''",
    "[http://a ": "]", "<nowiki>": "</nowiki>", "<math>": "</math>", "<pre>": "</pre>", "(": ")", "（": "）", "「（、": "）」", "\n==": "==\n",
    "=": "x", ":": "x", "\n:*": "x", "&#1": ";", "__ABC": "__", "|": "x", "、 ": "。", "　": "x",
    "<rt>": "</rt>", "<h3>": "</h3>", "<i style=display:none>": "</i>", "style=": "display:none", "<b a=": ">", "http://a(": ")",
    "（<ref/>、": "）", "、<ref/>": "。", "\n|a={{b|": "\n|c=d\n}}", "\n|-\n": "|a", "\n}}": "|}", "[[a:": "|]]", "----": "\n", "&a": ";",
    "<sup>": "</sup>", "1<sub>''": "''</sub>", "<sup": ">", "&#91": ";", "{{!}}": "{{=}}", "{{sfrac|1|": "}}",
}  # fmt: skip
# Pages of n repeats of a construct o and its end c.
SHAPES: list[Callable[[str, str, int], str]] = [
    lambda o, _, n: o * n,
    lambda o, c, n: o * n + "x" + c * n,
    lambda o, c, n: (o + "x" + c) * n,
    lambda o, c, n: c + o * n + "x",
    lambda o, c, n: o * n + c,
    lambda o, c, n: (c + o) * n,
]
# repeats that mix two constructs, and single long ones
MIXED: list[Callable[[int], str]] = [
    lambda n: "{{a|[[b|" * n + "]]}}" * n,
    lambda n: "{{a|[[b|" * n + "}}]]" * n,
    lambda n: "{|\n<table>" * n + "\n|}</table>" * n,
    lambda n: "</table>" + "{|\n" * n + "</table>" * n,
    lambda n: "[[a" + "(" * n + "|]]",
    lambda n: "[[a" + " " * n + "x|]]",
    lambda n: "[http://a" + " " * n + "\n",
    lambda n: "== a" + "　" * n + "x ==",
    lambda n: "=" + "\t" * n + "x" * n + "=" * n + "x",
    lambda n: "{{small|" + "a" * n + " " * n + "b}}",
    lambda n: "<ref" + " " * n + "x",
    lambda n: "<ref>" + "</ref   " * n,
    lambda n: "{{small|" * n + "x" * 20 * n + "}}" * n,
    lambda n: "( " + " " * n,
    lambda n: "\n" * n + ")",
    lambda n: "{{convert|" + "1" * n + "x|" + "1" * n + "x|m}}",
    lambda n: "{{convert|1" + "|x|1" * n + "|m}}",
    lambda n: "'" * n + "<sup>" + "1" * n + "x</sup>" * 2,
]
NESTED = [partial(shape, o, c) for shape in SHAPES for o, c in OPENINGS.items()]
PAGES = [pytest.param(page, marks=pytest.mark.rehearse, id=repr(page(2))) for page in NESTED]
PAGES += [pytest.param(page, id=repr(page(2))) for page in MIXED]


def seconds(page: str) -> float:
    # Of this thread alone: earlier tests may have left others.
    started = time.thread_time()
    to_text(page)
    return time.thread_time() - started


@pytest.mark.parametrize("page", PAGES)
def test_time_grows_with_the_page(page: Callable[[int], str]) -> None:
    """16 times the page takes about 16 times the time; if the time grew with the square, it would take 256 times.

    Up to 0.2 s nothing is asked: a quadratic page needs far more.
    """
    few, many = page(2_500), page(40_000)
    assert seconds(many) < 0.2 or min(seconds(many), seconds(many)) < 64 * min(seconds(few), seconds(few))


def test_nesting_needs_memory_in_proportion_to_the_page() -> None:
    for page in ("{{" * 50_000, "[[a|y" * 20_000 + "]]" * 20_000, "（" * 50_000 + "）" * 50_000):
        tracemalloc.start()
        to_text(page)
        assert tracemalloc.get_traced_memory()[1] < 150 * len(page)
        tracemalloc.stop()


def test_what_is_removed_and_what_is_left_add_up() -> None:
    markup = "本文&nbsp;{{PAGENAME}}<br>\n\n{{出典}}\n* [[a|項目]]&amp;lt;\n{|\n| 表\n|}\n== 節 ==\n文。\n"
    removed: Counter[str] = Counter()
    text = to_text(markup, "長い題", removed=removed)
    assert sum(removed.values()) == characters(markup) - characters(text)


LEFTOVERS = re.compile(
    r"\[\[|\]\]|\{\{|\}\}|<ref|\|thumb|\|サムネイル|__[A-Z]+__|&[a-z]+;|&#\d+;|</?(?:br|small|sub|sup|div|span|math|nowiki|gallery)\b|'''|（）|（、|^==|^\{\|",
    re.M,
)


def bundled_articles() -> list[str]:
    root = ElementTree.fromstring(bz2.decompress(workspace.data("jawiki-sample.xml.bz2").read_bytes()))
    space = {"m": "http://www.mediawiki.org/xml/export-0.11/"}
    pages = [page for page in root.findall("m:page", space) if page.findtext("m:ns", "", space) == "0"]
    return [page.findtext("m:revision/m:text", "", space) for page in pages]


def test_bundled_dump_leaves_no_markup() -> None:
    found = [
        (match[0], text[max(0, match.start() - 20) : match.end() + 20])
        for text in map(to_text, bundled_articles())
        for match in LEFTOVERS.finditer(text)
    ]
    assert found == []
