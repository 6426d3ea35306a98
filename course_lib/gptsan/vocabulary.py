"""A vocabulary of the published form, built from the course's texts: vocab.txt, emoji.json, tokenizer_config.json.

An entry is worth the tokens it saves: a substring of 2 or 3 letters, its occurrences × (length − 1); a character, its occurrences × (bytes − 1),
since it would be bytes otherwise. The best fill the room that the special block leaves. Ids follow the same worth, substrings first, then
characters, then the special block: the smallest id wins when encoding, so a character must come after every substring it begins. A
substring of 3 whose first 2 are worth as much would never win, and is left out. Some others never win either, because the text before them
always takes their first character (a twentieth of 8000 entries from the course's corpus).

Old forms of characters (學) are counted as the new ones (学) and become further spellings of their entries.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import pairwise, product
from pathlib import Path

from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder
from course_lib.gptsan.emoji import emoji_tables
from course_lib.gptsan.swe import NAMED, SPECIALS, SubwordEncoding

MARKS = re.compile(r"<\|?\w+\|?>")  # spaces, line ends and emoji in a prepared text
LETTERS = re.compile(r"[^\W\d_]{2,}")
ALWAYS = "".join(map(chr, range(0x21, 0x7F))) + "、。｡．？！：；"  # single characters of every vocabulary
LEAST = 2  # occurrences of an entry
ROOM = 4_000_000  # substrings counted at once; beyond, the rarest are forgotten
NEW_AND_OLD = (
    "亜亞 悪惡 圧壓 囲圍 医醫 営營 駅驛 円圓 塩鹽 応應 欧歐 桜櫻 価價 会會 絵繪 拡擴 覚覺 学學 楽樂 気氣 帰歸 旧舊 経經 軽輕 県縣 "
    "験驗 剣劍 厳嚴 国國 済濟 雑雜 参參 辞辭 実實 写寫 釈釋 収收 従從 獣獸 処處 証證 乗乘 畳疊 触觸 図圖 数數 声聲 静靜 専專 戦戰 "
    "浅淺 銭錢 双雙 争爭 総總 蔵藏 属屬 続續 対對 体體 帯帶 択擇 担擔 単單 団團 断斷 弾彈 遅遲 昼晝 聴聽 転轉 点點 伝傳 当當 党黨 "
    "盗盜 独獨 読讀 悩惱 脳腦 拝拜 廃廢 売賣 麦麥 発發 髪髮 仏佛 払拂 変變 宝寶 豊豐 満滿 訳譯 薬藥 与與 様樣 来來 乱亂 両兩 礼禮 "
    "霊靈 恋戀 労勞 楼樓 湾灣"
)
OLD_FORMS = {pair[1]: pair[0] for pair in NEW_AND_OLD.split()}
NEW_FORMS = {new: old for old, new in OLD_FORMS.items()}


@dataclass(frozen=True)
class Counts:
    """What a vocabulary was built from, and what is in it."""

    texts: int
    characters: int  # of the texts
    entries: int
    substrings: int  # entries of 2 and 3 characters
    single: int  # entries of one character


def build_vocabulary(texts: Iterable[str], size: int, folder: Path) -> Counts:
    """Writes a vocabulary of `size` entries as a folder that GPTSanTokenizer loads. The same texts give the same files.

    Raises UsageError if `size` does not hold the special block or is more than the texts fill, CourseError if there is no text.
    """
    least = len(SPECIALS) + len(ALWAYS)
    if size <= least:
        raise UsageError(f"size: {size} is too small; allowed: more than {least}, the special entries and ASCII")
    tables = emoji_tables()
    with atomic_folder(folder) as place:
        number, length, characters, substrings = _count(texts, tables)
        if not length:
            raise CourseError("there is no text to build a vocabulary from")
        worth = _worth(characters, substrings)
        if size - least > len(worth):
            raise UsageError(f"size: {size} is more than these texts fill; allowed: up to {least + len(worth)}")
        chosen = sorted(worth, key=lambda entry: (-worth[entry], entry))[: size - least]
        long = [entry for entry in chosen if len(entry) > 1]
        single = sorted({*ALWAYS, *(entry for entry in chosen if len(entry) == 1)}, key=lambda c: (-characters[c], c))
        lines = [*(",".join(_spellings(entry)) for entry in [*long, *single]), *SPECIALS]
        counts = Counts(number, length, len(lines), len(long), len(single))
        _write(place, lines, tables, counts)
    return counts


def _count(texts: Iterable[str], tables: dict[str, dict[str, str]]) -> tuple[int, int, Counter[str], Counter[str]]:
    """Texts and characters read; occurrences of single characters, and of substrings of 2 and 3 letters."""
    prepare = SubwordEncoding(SPECIALS, tables["emoji"], tables["emoji_inv"]).prepare
    old_to_new = str.maketrans(OLD_FORMS)
    number, length, forgotten = 0, 0, 0
    characters: Counter[str] = Counter()
    substrings: Counter[str] = Counter()
    for text in texts:
        number += 1
        length += len(text)
        for piece in MARKS.split(prepare(text).translate(old_to_new)):
            characters.update(piece)
            for word in LETTERS.findall(piece):
                substrings.update(map("".join, pairwise(word)))
                substrings.update(map("".join, zip(word, word[1:], word[2:], strict=False)))
        if len(substrings) > ROOM:
            forgotten += 1
            substrings = Counter({entry: n for entry, n in substrings.items() if n > forgotten})
    return number, length, characters, substrings


def _worth(characters: Counter[str], substrings: Counter[str]) -> dict[str, int]:
    """The tokens that each possible entry saves."""
    singles = {c: n * (len(c.encode()) - 1) for c, n in characters.items() if n >= LEAST and c not in ALWAYS}
    long = {entry: n * (len(entry) - 1) for entry, n in substrings.items() if n >= LEAST}
    return singles | {
        entry: saved for entry, saved in long.items() if saved > long.get(entry[:-1], 0) or len(entry) == 2
    }


def _spellings(entry: str) -> list[str]:
    """The entry, then what it is with old forms."""
    return ["".join(forms) for forms in product(*(c + NEW_FORMS.get(c, "") for c in entry))]


def _write(place: Path, lines: list[str], tables: dict[str, dict[str, str]], counts: Counts) -> None:
    """Without a line end after the last line, as the original's tools want it."""
    config = {
        "tokenizer_class": "GPTSanTokenizer",
        "unk_token": NAMED["nottoken"],
        "pad_token": NAMED["sep"],
        "bos_token": NAMED["sot"],
        "eos_token": NAMED["eot"],
        "sep_token": NAMED["seg"],
        "padding_side": "left",
        "do_clean_text": False,
    }
    (place / "vocab.txt").write_text("\n".join(lines), encoding="utf8", newline="\n")
    for name, content in ("emoji", tables), ("tokenizer_config", config), ("preparation", asdict(counts)):
        (place / f"{name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf8")
