"""Visible text for Japanese Wikipedia templates that are part of a sentence.

Template names and the arguments they display follow the template pages at
https://ja.wikipedia.org/wiki/Template:<name>. All other templates are removed: infoboxes, notices, citations, icons,
navigation, and coordinates (a remark after a name). Names are compared in lowercase, with underscores replaced by
spaces.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from course_lib.corpus.literals import APART, protect, yielded
from course_lib.corpus.superscripts import LOWERED, RAISED, superscript

# Language code → label that {{lang-xx|…}} puts before its words.
LANGUAGES = {
    "en": "英", "fr": "仏", "de": "独", "it": "伊", "es": "西", "pt": "葡", "ru": "露", "la": "羅", "nl": "蘭",
    "zh": "中", "ko": "朝", "el": "希", "ar": "アラビア語", "tr": "トルコ語", "sa": "梵", "pl": "ポーランド語",
    "sv": "スウェーデン語", "vi": "ベトナム語",
}  # fmt: skip
MONEY = {"us$": "US$", "usd": "US$", "eur": "€", "gbp": "£", "jpy": "¥", "yen": "¥", "krw": "₩"}
# Templates without arguments → the text they display.
SIMPLE = {
    "!": "|", "!!": "||", "(!": "{|", "!)": "|}", "!-": "|-", "=": "=", "·": "・", "•": "・", "・": "・", "'": "’",
    "ndash": "–", "en dash": "–", "snd": " – ", "spaced ndash": " – ", "mdash": "—", "em dash": "—", "spaces": " ",
    "nbsp": " ", "br": "\n", "sharp": "♯", "flat": "♭", "π": "π", "pi": "π", "±": "±",
}  # fmt: skip
# Templates whose text is a sign of markup that is shown.
SIGNS = {"(": "{", ")": "}", "((": "{{", "))": "}}", "[": "[", "]": "]"}
SIMPLE |= {name: protect(sign) for name, sign in SIGNS.items()}


def _table(name: str) -> dict[str, str]:
    """Return the rows of a data file, two columns each."""
    text = Path(__file__).with_name(name).read_text(encoding="utf8")
    return dict(row.split("\t") for row in text.splitlines())


# {{FRA}} and {{flag|FRA}} show a flag and the country's name. The codes are from ISO 3166-1 and, where they differ,
# also from the International Olympic Committee.
COUNTRIES = {code: name for codes, name in _table("countries.tsv").items() for code in codes.split(",")}
# {{USA1912}} shows the flag from 1912.
COUNTRY = re.compile(r"([A-Z]{2,3})(?:\d{4})?")
# The length of a key is bounded, so that a long argument without "=" is not searched to its end.
NAMED = re.compile(r"\s*+([^\s=<>\[\]]{1,50}+)\s*+=(.*)", re.S)
# Word between two numbers in {{convert}} and {{val}} → the text displayed for it.
RANGES = dict.fromkeys(("to", "-", "–", "to(-)"), "–") | dict.fromkeys(("x", "by", "*", "×", "xx", "by(x)"), " × ")
RANGES |= {"and": " and ", "or": " or ", "±": "±", "+/-": "±", ",": ", ", "+": " + "}
# 5, 1,234.5, 5+1/2, 1/2
NUMBER = re.compile(r"[-+−–]?(?=[.,]*[0-9])[0-9.,]++(?:[-+]?[0-9]*+//?[0-9]+)?(?:[eE][-+]?[0-9]+)?")
# The power in a unit: km2, m3/s, mol-1.
UNIT_POWER = re.compile(r"(?<=[A-Za-zΩµμ])[-−]?[0-9](?![0-9A-Za-z])")
# Units that follow their number without a space.
CLOSE_UNITS = {"%", "‰", "°", "′", "″"}
WHOLE_NUMBER = re.compile(r"(?<![0-9.,])[1-9][0-9]{3,30}(?![0-9])")
SUM = re.compile(r"[-+−–±×·*/\s]")
# {{audio}} labels that are buttons, not words in the sentence.
BUTTONS = {"発音", "発音例", "聞く", "音声", "ヘルプ", "listen", "help"}

Positional = Sequence[str]
Named = Mapping[str, str]
# Returns the text of a template for its positional and its named arguments.
Rule = Callable[[Positional, Named], str]


def expand(content: str, title: str = "") -> str:
    """Return what `shown` does, with placeholders for signs that would divide the arguments of the template around it.

    APART stands at both ends of a fraction, so that 3{{sfrac|1|2}} does not become 31/2.
    """
    text = yielded(shown(content, title))
    return f"{APART}{text}{APART}" if text and _RULES.get(_name(content)) is _fraction else text


def shown(content: str, title: str = "") -> str:
    """Return the text that a reader sees in place of {{content}}; "" for a template that displays none.

    `content` contains no other template. `title` is the article title, for {{PAGENAME}}.
    """
    name, *arguments = content.split("|")
    name = name.strip()
    if not arguments and (country := COUNTRY.fullmatch(name)) and country[1] in COUNTRIES:
        return COUNTRIES[country[1]]
    name = _name(name)
    if (word := SIMPLE.get(name)) is not None:
        return word
    if name == "pagename":
        return title
    if name.startswith("formatnum:"):
        number = name[10:].strip()
        return f"{int(number):,}" if re.fullmatch(r"[0-9]{1,30}", number) else number
    rule = _RULES.get(name) or _by_form(name)
    if rule is None or not arguments:
        return ""
    positional: list[str] = []
    named: dict[str, str] = {}
    for argument in arguments:
        if (pair := NAMED.match(argument)) and "://" not in pair[1]:
            named[pair[1]] = pair[2].strip()
        else:
            positional.append(argument.strip())
    positional += [named[str(i)] for i in range(len(positional) + 1, 10) if str(i) in named]
    return rule(positional, named)


def _name(content: str) -> str:
    return content.partition("|")[0].strip().replace("_", " ").lower()


def _by_form(name: str) -> Rule | None:
    """Return the rule for a name with a code or fixed part ({{lang-en}}, {{en}}, {{いつ範囲}}); None for others."""
    if name.startswith("lang-"):
        return lambda positional, named: _labelled(name[5:7], _foreign(positional, named))
    if name.startswith("ipa-"):
        return lambda positional, _: f"[{positional[0]}]" if positional and positional[0] else ""
    if name.endswith("範囲") or name.startswith(("link-", "script/")):
        return _argument(0)
    return None


def _argument(index: int) -> Rule:
    """Return the rule that displays a label or, without one, the argument at an index."""

    def choose(positional: Positional, named: Named) -> str:
        return named.get("label") or named.get("ja") or (positional[index] if len(positional) > index else "")

    return choose


def _last(positional: Positional, _named: Named) -> str:
    return positional[-1] if positional else ""


def _foreign(positional: Positional, named: Named) -> str:
    """Return foreign-language words: {{en|Grenada}} → Grenada; {{zh|t=臺北|p=Táiběi}} → 臺北、Táiběi."""
    if positional:
        return positional[0]
    return "、".join(named[key] for key in ("c", "t", "s", "hangul", "hanja", "p", "rr") if named.get(key))


def _labelled(code: str, words: str) -> str:
    """Label words with their language, as Wikipedia shows them: {{lang-en|Mount Fuji}} → 英: Mount Fuji."""
    label = LANGUAGES.get(code, "")
    return f"{label}: {words}" if label and words else words


def _coded(positional: Positional, _named: Named) -> str:
    """Label words whose language is the first argument: {{langx|en|Mount Fuji}} → 英: Mount Fuji."""
    return _labelled(positional[0][:2].lower(), positional[1]) if len(positional) > 1 else ""


def _reading(positional: Positional, _named: Named) -> str:
    """Put the reading of a word in brackets: {{読み仮名|富士山|ふじさん}} → 富士山（ふじさん）."""
    word, *rest = [*positional, ""]
    readings = "、".join(filter(None, rest))
    return f"{word}（{readings}）" if word and readings else word or readings


def _fraction(positional: Positional, _named: Named) -> str:
    """Write a fraction: {{sfrac|1|2}} → 1/2, {{sfrac|3|1|2}} → 3 1/2, {{sfrac|2}} → 1/2, {{sfrac|n+1|2}} → (n+1)/2."""
    whole, upper, lower = ["", "", "", *[part for part in positional if part][:3]][-3:]
    if not lower:
        return ""
    fraction = "/".join(f"({part})" if SUM.search(part) else part for part in (upper or "1", lower))
    return f"{whole} {fraction}".strip()


def _quantity(positional: Positional, _named: Named) -> str:
    """Write a quantity in the units that it is given in, without the units that it is converted to.

    {{convert|3776|m|ft}} → 3776 m, {{convert|10|to|20|km2}} → 10–20 km², {{convert|5|ft|10|in|m}} → 5 ft 10 in.
    """
    # `kind` is that of the last part: start, number, range or unit.
    text, kind = "", "start"
    for part, following in zip_longest(positional, positional[1:], fillvalue=""):
        before_number = bool(NUMBER.fullmatch(following))
        if part in RANGES and before_number:
            text, kind = text + RANGES[part], "range"
        elif kind in ("start", "range"):
            text, kind = text + _mixed(part), "number"
        elif kind == "number" and not NUMBER.fullmatch(part):
            text, kind = f"{text} {_unit(part)}", "unit"
        # A number before a unit belongs to the quantity; any other one is the precision of the conversion.
        elif kind == "unit" and NUMBER.fullmatch(part) and following and not before_number:
            text, kind = f"{text} {_mixed(part)}", "number"
        else:
            break
    return text.strip()


def _series(positional: Positional) -> tuple[str, Positional]:
    """Return numbers with the words between them, and the arguments behind them: 10, x, 20, cm → 10 × 20, [cm]."""
    numbers = [_mixed(positional[0])]
    for word, number in zip(positional[1::2], positional[2::2], strict=False):
        if word not in RANGES or not NUMBER.fullmatch(number):
            break
        numbers += [RANGES[word], _mixed(number)]
    return "".join(numbers), positional[len(numbers) :]


def _mixed(number: str) -> str:
    """Write a number with a fraction, which {{convert}} takes as one argument: 5+1/2 → 5 1/2."""
    return re.sub(r"(?<=[0-9])[-+](?=[0-9]+/)", " ", number).replace("//", "/")


def _unit(unit: str) -> str:
    return UNIT_POWER.sub(lambda power: power[0].translate(RAISED), unit)


def _value(positional: Positional, named: Named) -> str:
    """Write a number with its uncertainty, its power of ten and its unit.

    {{val|1.5|e=6|u=km}} → 1.5×10⁶ km, {{val|1.5|0.3}} → 1.5±0.3, {{val|1.5|(3)}} → 1.5(3), {{val|5|-|7}} → 5–7.
    """
    number, rest = _series(positional) if positional else ("", ())
    if rest and rest[0].startswith("("):
        number += rest[0]
    elif len(rest) > 1 and NUMBER.fullmatch(rest[0]) and NUMBER.fullmatch(rest[1]):
        number = f"{number} (+{rest[0].lstrip('+')}/−{rest[1].lstrip('-−–')})"
    elif rest and NUMBER.fullmatch(rest[0]):
        number = f"{number}±{rest[0].lstrip('+-−–')}"
    if named.get("fmt") == "commas":
        number = WHOLE_NUMBER.sub(lambda digits: f"{int(digits[0]):,}", number)
    if named.get("e"):
        is_single = not number or NUMBER.fullmatch(number.partition("(")[0])
        number = (number if is_single else f"({number})") + _times_power(named["e"])
    unit = _unit(named.get("u") or named.get("ul") or "")
    if below := named.get("up") or named.get("upl"):
        unit += f"/{_unit(below)}"
    gap = "" if unit in CLOSE_UNITS else " "
    return f"{named.get('p', '')}{number}{named.get('s', '')}{gap}{unit}".strip()


def _times_power(exponent: str) -> str:
    return f"×10{superscript('10', exponent)}"


def _power(positional: Positional, _named: Named) -> str:
    return _times_power(positional[0]) if positional else ""


def _sup_sub(tag: str) -> Rule:
    """Return a rule that leaves the argument to superscripts.py, which also sees what stands before and behind it."""
    return lambda positional, _named: f"<{tag}>{positional[0]}</{tag}>" if positional else ""


def _formula(positional: Positional, _named: Named) -> str:
    """Write a chemical formula: {{chem|H|2|O}} → H2O, {{chem|SO|4|2-}} → SO4²⁻, {{chem|14|6|C}} → ¹⁴₆C."""
    text = ""
    for part in positional:
        if re.fullmatch(r"[0-9]*[-+−–]", part) or (part.isdecimal() and not text):
            part = part.translate(RAISED)
        elif part.isdecimal() and not text[-1].isalpha() and text[-1] not in ")]":
            part = part.translate(LOWERED)
        text += part
    return text


def _interlanguage(positional: Positional, _named: Named) -> str:
    """Return the label of a link to another Wikipedia, or its target if it has no label.

    {{interlang|en|Narva|ナルヴァ}} → ナルヴァ; {{interlang|en|Narva}} → Narva.
    """
    return next((words for words in positional[2:0:-1] if words), "")


def _sound(positional: Positional, _named: Named) -> str:
    """Return the label of a sound file: {{audio|a.ogg|Konungariket}} → Konungariket; "" for a button such as 発音."""
    label = next((words for words in positional[1:4:2] if words), "")
    return "" if label.strip("'").lower() in BUTTONS else label


def _flag(positional: Positional, _named: Named) -> str:
    """Return the name of a country: {{flag|FIN}} → フィンランド."""
    return COUNTRIES.get(positional[0], positional[0]) if positional else ""


def _joined(separator: str) -> Rule:
    return lambda positional, _named: separator.join(filter(None, positional))


def _date(positional: Positional, _named: Named) -> str:
    """Write a date: {{生年月日と年齢|1990|4|1}} → 1990年4月1日."""
    return "".join(f"{part}{unit}" for part, unit in zip(positional, "年月日", strict=False) if part)


def _death(positional: Positional, named: Named) -> str:
    """Return the date of death: {{死亡年月日と没年齢|1910|3|23|1998|9|6}} → 1998年9月6日."""
    return _date(positional[3:], named)


def _year(positional: Positional, _named: Named) -> str:
    year = positional[0] if positional else ""
    return f"{year}年" if year.isdecimal() else year


def _cited(form: str) -> Rule:
    """Return the rule for a citation that is part of a sentence; `form` has {} for the authors and for the year.

    {{Harvtxt|Tarjan|1988|p=5}} → Tarjan (1988, p. 5); {{Harvnb|Aho|Ullman|1972}} → Aho & Ullman 1972.
    """

    def cite(positional: Positional, named: Named) -> str:
        authors = [part for part in positional if part]
        year = authors.pop() if len(authors) > 1 else ""
        if len(authors) > 3:
            authors = [f"{authors[0]} et al."]
        names = " & ".join(filter(None, (", ".join(authors[:-1]), *authors[-1:])))
        page = named.get("p") or named.get("page")
        pages = named.get("pp") or named.get("pages")
        location = f"p. {page}" if page else f"pp. {pages}" if pages else named.get("loc", "")
        year_and_location = ", ".join(filter(None, (year, location)))
        return form.format(names, year_and_location) if year_and_location else names

    return cite


def _money(sign: str) -> Rule:
    return lambda positional, _named: f"{sign}{positional[0]}" if positional and positional[0] else ""


# In templates.tsv: which argument is shown, or the kind → template names. `language` are those such as {{en|Grenada}}:
# all ISO 639-1 codes, and the ISO 639-3 codes that have a template.
_KINDS: dict[str, Rule] = {
    "first": _argument(0),
    "second": _argument(1),
    "last": _last,
    "reading": _reading,
    "fraction": _fraction,
    "flag": _flag,
    "date": _date,
    "language": _foreign,
}
_RULES: dict[str, Rule] = (
    {name: _KINDS[kind] for kind, names in _table("templates.tsv").items() for name in names.split("|")}
    | {name: _money(sign) for name, sign in MONEY.items()}
    | {
        "langx": _coded,
        "llang": _coded,
        "convert": _quantity,
        "cvt": _quantity,
        "val": _value,
        "e": _power,
        "interlang": _interlanguage,
        "audio": _sound,
        "chem": _formula,
        "sup": _sup_sub("sup"),
        "sub": _sup_sub("sub"),
        "hlist": _joined("・"),
        "節リンク": _joined(" § "),
        "死亡年月日と没年齢": _death,
        "harvtxt": _cited("{} ({})"),
        "harvcoltxt": _cited("{} ({})"),
        "harvnb": _cited("{} {}"),
        "harvcolnb": _cited("{} {}"),
        "年": _year,
    }
)
