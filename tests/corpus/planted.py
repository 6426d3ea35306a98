"""Near copies of documents, made on purpose, for the tests of the search for near duplicates."""

import random
import re

SENTENCE = re.compile(r"[^。]*。|[^。]+$")
HEADERS = ("ホーム > 読みもの > 第三回 | 前へ | 次へ\n", "この記事は三分で読めます\n", "【再掲】\n")
FOOTERS = (
    "\nこの記事へのコメントはまだありません。",
    "\n無断転載を禁じます。 © 2014 よみもの倶楽部",
    "\n前の記事へ戻る | 一覧",
)


def near_copy(text: str, chance: random.Random, lowest: float = 0.03, highest: float = 0.08) -> str:
    """A copy with 3-8 % of its characters replaced, dropped or doubled by another, a sentence moved, a header and a footer."""
    rate = chance.uniform(lowest, highest)
    letters = [letter for letter in text if not letter.isspace()]
    edited = "".join(_edit(character, letters, chance) if chance.random() < rate else character for character in text)
    sentences = SENTENCE.findall(edited)
    if len(sentences) > 3:
        moved = sentences.pop(chance.randrange(len(sentences)))
        sentences.insert(chance.randrange(len(sentences)), moved)
    return chance.choice(HEADERS) + "".join(sentences) + chance.choice(FOOTERS)


def _edit(character: str, letters: list[str], chance: random.Random) -> str:
    other = chance.choice(letters)
    return chance.choice((other, other, "", character + other))
