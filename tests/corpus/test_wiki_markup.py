"""Text that looks like markup stays as it is: links with a colon, lines, tags, brackets, hidden text, references."""

from collections import Counter

import pytest
from course_lib.corpus.report import characters
from course_lib.corpus.wikitext import GAP, LANGUAGES, NONCHARACTERS, PARAMETERS_END, to_text

LINKS = [
    ("[[ミッション:インポッシブル]]と[[Re:ゼロから始める異世界生活]]", "ミッション:インポッシブルとRe:ゼロから始める異世界生活"),
    ("[[STAR:LIGHT]]、[[NieR:Automata]]、[[Doctor Who: The Movie]]", "STAR:LIGHT、NieR:Automata、Doctor Who: The Movie"),
    ("[[UTC+09:00]]、[[ISO 3166-2:JP]]、[[24:00]]、[[5:3]]", "UTC+09:00、ISO 3166-2:JP、24:00、5:3"),
    ("[[re:ゼロ]]と[[jp:東京]]", "re:ゼロとjp:東京"),
    ("[[Portal:日本]]、[[wikt:猫]]、[[s:en:Foo]]、[[w:en:Foo]]", "Portal:日本、wikt:猫、s:en:Foo、w:en:Foo"),
    ("[[:en:Foo]]、[[:Category:山]]、[[:ファイル:A.jpg]]", "en:Foo、Category:山、ファイル:A.jpg"),
    ("[[:en:Foo|独]]と[[w:Foo|札]]", "独と札"),
    ("東京[[de:Tokio]][[zh-min-nan:Tang-kiaⁿ]][[simple:Tokyo|札]][[ En : Tokyo ]]", "東京"),
    ("東京[[ファイル :A.jpg|thumb|説明]][[_category_:都市]][[\u200eカテゴリ:山]]", "東京"),
    ("[[std::vector]]と[[as::x]]", "std::vectorとas::x"),
    ("[[Portal:日本|]]、[[Help:目次 (案内)|]]、[[ 東京 ]]", "日本、目次、東京"),
    ("[[東京|]]と[[大阪]]と[[a|b:c]]", "東京と大阪とb:c"),
]  # fmt: skip

LINES = [
    ("'''!!!'''（チック）はバンドである。", "!!!（チック）はバンドである。"),
    ("!クン語は言語である。\n\n本文<br />!改行の後の文。", "!クン語は言語である。\n本文\n!改行の後の文。"),
    ("|A|は行列式である。\n|-3|は3である。\n|AB| = |A||B|", "|A|は行列式である。\n|-3|は3である。\n|AB| = |A||B|"),
    ("|ψ⟩ = α|0⟩ + β|1⟩ である。", "|ψ⟩ = α|0⟩ + β|1⟩ である。"),
    ("本文。\n}}余り\n|}残り\n}}", "本文。\n余り\n残り"),
    ("本文。\n----\n次。\n-----続き。\n--二本", "本文。\n次。\n続き。\n--二本"),
    ("<b>{|</b>は表の始まり。", "{|は表の始まり。"),
    ("{{Infobox 人物\n| 名前 = {{ruby|太郎|たろう\n| 職業 = 作家\n}}'''太郎'''は作家である。\n\n次。", "太郎は作家である。\n次。"),
    ("{{Infobox 人物\n|名前={{ruby|太郎|たろう<br />\nたろう\n|職業=作家\n}}\n太郎は作家である。", "太郎は作家である。"),
    ("{{Infobox 人物 | 名前 = {{Unknown|太郎\n| 職業 = 作家\n}}太郎は作家である。", "太郎は作家である。"),
    ("{{Infobox 人物\n| 名前 = {{ruby|太郎}}}}\n| 職業 = 作家\n}}太郎は作家である。", "太郎は作家である。"),
    ("{{Infobox 人物\n| 名前 = 太郎\n| 作家\n\n太郎は作家である。", "太郎は作家である。"),
    ("| 名前 = 太郎\n| 職業 = 作家 }} 太郎は作家である。", "太郎は作家である。"),
    ("{{仮リンク|表示|en|Shown\n|label = 札\n}}である。", "札である。"),
    ("{{成績の表}}\n! 年 !! 順位\n|-\n| 2010 || 1\n|- style=a\n| 2011\n|}\n後。\n== 次 ==\n!クン語", "後。\n\n次\n!クン語"),
    ("{{表の始め}}\n| a || b\n! c\n|}\n\n|A|は行列式", "|A|は行列式"),
    ("前\n<!-- c -->{| class=a\n| b\n|}<!-- d -->\n<!-- e -->== 次 == <!-- f -->\n後", "前\n\n次\n後"),
    ("* |A|は行列式\n:!クン語\n! 行", "|A|は行列式\n!クン語\n! 行"),
    ("{|x| < 1} は区間。\n{|y|}も。\n\n{| class=a\n! b\n|-\n| c\n|}\n\n後。", "{|x| < 1} は区間。\n{|y|}も。\n後。"),
    ("{| class=a\n! b\n|-\n| c\n続き\n\n| d\n\n本文。\n\n{|\n| e\n|}\n後。", "本文。\n後。"),
    ("{| class=a\n\n本文。\n{|\n{|\n| b\n|}\n後。\n{|\n| c\n== 節 ==\n文。", "本文。\n後。\n\n節\n文。"),
    ("前<table border=1>\n<tr>\n<td>a</td>\n</tr>\n\n段落。<table>\n後。", "前\n段落。\n後。"),
    ("{{Infobox\n|値={{nowrap|a\n{{!}} b = c\n}}太郎は作家である。\n{{!}}x{{!}} = x である。", "太郎は作家である。\n|x| = x である。"),
    ("* (・∀・)\n* （^^）\n「……！」\n→<ref>a</ref>\n文。<ref>b</ref>\n。\n}\n<math>\\a</math>。", "(・∀・)\n（^^）\n「……！」\n文。"),
]  # fmt: skip

TAGS = [
    ("std::<code>vector<int></code>と List<String> と#include <iostream>", "std::vector<int>と List<String> と#include <iostream>"),
    ("n<m のとき、m>0。a<b かつ c>d。a<b and c>d。", "n<m のとき、m>0。a<b かつ c>d。a<b and c>d。"),
    ("p <q とする。\n\n次の段落。r> s。", "p <q とする。\n次の段落。r> s。"),
    ('<div class="a\n\nb">文', '<div class="a\nb">文'),
    ("a <source と\n\nb>c</source>", "a <source と\nb>c"),
    ("List<Object>と<T>と</foo>と<!とI<3", "List<Object>と<T>と</foo>と<!とI<3"),
    ('<span style="color:red" title="日本 語">赤</span>と<FONT color=red\nsize=2>字</FONT >', "赤と字"),
    ('<small/>小<a href="//a.example/">結</a><nobr>一行</nobr><td nowrap>升</td>', "小結一行升"),
    ("一<br \\>二<br/ >三<br clear=all /><BR>四</br>五<br.>", "一\n二\n三\n四\n五<br.>"),
    ('<abbr title="a""b=c; d=e">略</abbr><div align="center>中</div>', "略\n中"),
    ("<references />本文<ref name=\"総務省\"\n group=注 />。<poem>\n詩\n</poem><noinclude>後</noinclude>", "本文。\n詩\n後"),
    ("<code>#include <a.h></code>\n* '''*'''印\n<small>*注</small>\n''';'''印", "#include <a.h>\n*印\n*注\n;印"),
    ("* :-) や :D\n* #define A\n: * 項目\n*:; 項目", ":-) や :D\n#define A\n項目\n項目"),
    ("<noinclude>* 項目</noinclude>\n'''太''': 説明\n;''語'':説明\n*<b>太</b>", "項目\n太: 説明\n語:説明\n太"),
    ('<syntaxhighlight lang="c" inline>f(x)</syntaxhighlight>と<hr noshade>線', "f(x)と\n線"),
]  # fmt: skip

BRACKETS = [
    ("main()とprintf( \"a\" )。「」は鉤括弧、（）は括弧である。", 'main()とprintf( "a" )。「」は鉤括弧、（）は括弧である。'),
    ("(・∀・)、(;_;)、(・A・)、(・・)、(/_;)", "(・∀・)、(;_;)、(・A・)、(・・)、(/_;)"),
    ("二つ。。三つ、、（、読み）\n、行頭", "二つ。。三つ、、（、読み）\n、行頭"),
    ("「」<ref>x</ref>は括弧。main()<ref>y</ref>、(・∀・)<!-- c -->。", "「」は括弧。main()、(・∀・)。"),
    ("<code>()</code>と'''(、)'''と''「」''", "()と(、)と「」"),
    ("（<ref>x</ref>、読み）と（読み、<!-- c -->）と「{{x}}」と（『{{x}}』、{{y}}）。", "（読み）と（読み）とと。"),
    ("A、{{x}}、B。{{x}}。C、{{x}}。D。{{x}}、E，{{x}}，F．{{x}}．G", "A、B。C。D。E，F．G"),
    ("{{x}}、A\nB<br />、C\n・D{{x}}・E", "A\nB\nC\n・D・E"),
    ("（<http://a.example/>）と【<ref>x</ref>】と<>と【】。{{要出典}}。", "とと<>と【】。"),
    ("そうか。。。<ref>x</ref>次。(改行\n)である。文。　次の文", "そうか。。。次。(改行)である。文。次の文"),
    ("「<br />引用<br />」と（<math></math>）。", "「引用」と。"),
    ("{{small|（{{x}}、小）}}と[[東京|東京（<ref>x</ref>）]]", "（小）と東京"),
    ("{{仮リンク<!-- a -->|表示<!-- b -->|en|X}}と{{年|2000<!-- c -->}}と[[東京|<!-- d -->]]と10<sup>3<!-- e --></sup>", "表示と2000年と東京と10³"),
    ("{{{1|既定値}}}と（{{{2|}}}、読み）と{{{a|{{{b|深い}}}}}}", "既定値と（読み）と深い"),
    (f"{GAP}、（{GAP}）{PARAMETERS_END}{NONCHARACTERS[2]}と（{{{{x}}}}）", f"{GAP}、（{GAP}）{PARAMETERS_END}{NONCHARACTERS[2]}と"),
]  # fmt: skip

REST = [
    ("本文です<h3>見出し</h3>続きの文。", "本文です\n\n見出し\n続きの文。"),
    ("前。<H2 class=a>\n''年''\n</H2>\n後。<h4>閉じない\n\n文。", "前。\n\n年\n後。\n閉じない\n文。"),
    ("<h2>脚注</h2>\n注\n<h2>次</h2>文。", "次\n文。"),
    ("== a<sub>2</sub> ==\n文。", "a2\n文。"),
    ('前<span style="display:none">隠し<span>内</span></span>後。', "前後。"),
    ("前<DIV STYLE='color:red; DISPLAY: none'>\n\n段落\n\n</DIV>後。<span style=\"visibility:hidden\">0</span>1", "前\n後。1"),
    ('閉じない<span style="display:none">文<span style="color:red">赤</span>。\n\n次</span>。', "閉じない文赤。\n次。"),
    ('<span style="display:inline">文</span>、CSSのdisplay:none', "文、CSSのdisplay:none"),
    ("__FILE__と__LINE__、__init__と__index__", "__FILE__と__LINE__、__init__と__index__"),
    ("前__NOTOC__後__目次強制__、__toc__＿＿目次＿＿__INDEX__。", "前後。"),
    ("(http://a.example/x)である。（https://a.example/）と(参照:http://a.example/b)。", "である。と(参照:)。"),
    ("http://a.example/b(c)と(http://a.example/d_(e))とhttp://a.example/。次", "とと。次"),
    ("Life&times。&copy2024、&#12354、&nbsp と&notit;", "Life&times。&copy2024、&#12354、&nbsp と&notit;"),
    ("&times;と&amp;lt;と&amp;amp;と&lt;と&amp;nbsp;と&#x3042;", "×と&lt;と&amp;と<と とあ"),
    ("{{Harvtxt|Tarjan|1988}}は示した。", "Tarjan (1988)は示した。"),
    ("{{harvtxt|Aho|Ullman|1972|p=5}}、{{Harvnb|A|B|C|2001|pp=1–2}}、{{Harvtxt|A|B|C|D|2001|loc=序}}、{{Harvtxt|Tarjan}}", "Aho & Ullman (1972, p. 5)、A, B & C 2001, pp. 1–2、A et al. (2001, 序)、Tarjan"),
    ("山である{{sfn|山岡|2010}}（{{Harv|山岡|2010}}）。", "山である。"),
    ("<ruby>富士<rt>ふじ</ruby>山、<ruby>山<rp>（<rt>やま<rp>）</ruby>。", "富士山、山。"),
    ("<ruby>漢<rt>かん<rb>字<rt>じ</ruby>、<ruby>川<rp>（</rp><rt>かわ</rt><rp>）</rp></ruby>", "漢字、川"),
    ("<ruby>海<rt>うみ\n\n次の行。", "海うみ\n次の行。"),
]  # fmt: skip


@pytest.mark.parametrize(("markup", "text"), LINKS + LINES + TAGS + BRACKETS + REST)
def test_what_a_reader_sees(markup: str, text: str) -> None:
    removed: Counter[str] = Counter()
    assert to_text(markup, drop_sections=frozenset({"脚注"}), removed=removed) == text
    assert sum(removed.values()) == characters(markup) - characters(text)


def test_codes_are_those_of_the_wikipedias() -> None:
    assert {"en", "zh-yue", "simple", "ja", "nb"} <= LANGUAGES
    assert not {"re", "w", "wikt", "iso", "commons", "species", "d"} & LANGUAGES
    assert len(LANGUAGES) > 340
