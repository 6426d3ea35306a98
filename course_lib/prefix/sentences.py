"""Generator of short polite sentences with their plain forms, from a word list and three sentence patterns.

A base of two million parameters cannot rewrite free text, but sentences built from about 90 words. `documents` writes
training text for the base, and `pairs` the sentences of the task `plain`. No sentence is in both.
"""

import random
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

PEOPLE = "私 彼 彼女 母 父 兄 姉 弟 妹 祖母 祖父 先生 学生 友人 子供 医者"
JOBS = "教師 作家 兵士 職員 農民 船長 俳優 市長"
PLACES = "家 学校 駅 庭 部屋 公園"
# A verb as (stem before ます, present, past, stem before ない), and its objects.
VERBS = {
    ("読み", "読む", "読んだ", "読ま"): "本 新聞 手紙",
    ("食べ", "食べる", "食べた", "食べ"): "魚 肉 果物",
    ("飲み", "飲む", "飲んだ", "飲ま"): "水 酒 薬",
    ("買い", "買う", "買った", "買わ"): "靴 野菜 花",
    ("書き", "書く", "書いた", "書か"): "手紙 日記 小説",
    ("作り", "作る", "作った", "作ら"): "料理 人形 椅子",
    ("見", "見る", "見た", "見"): "映画 空 星",
    ("聞き", "聞く", "聞いた", "聞か"): "音楽 歌 話",
    ("洗い", "洗う", "洗った", "洗わ"): "皿 手 車",
    ("待ち", "待つ", "待った", "待た"): "電車 返事 手紙",
    ("使い", "使う", "使った", "使わ"): "辞書 機械 鍋",
    ("持ち", "持つ", "持った", "持た"): "傘 荷物 地図",
    ("開け", "開ける", "開けた", "開け"): "窓 箱 扉",
    ("運び", "運ぶ", "運んだ", "運ば"): "荷物 机 石",
    ("描き", "描く", "描いた", "描か"): "絵 山 花",
    ("借り", "借りる", "借りた", "借り"): "本 傘 車",
}
POLITE_VERB = ("ます", "ました", "ません", "ませんでした")
NOUN_FORMS = (
    ("です", "だ"),
    ("でした", "だった"),
    ("ではありません", "ではない"),
    ("ではありませんでした", "ではなかった"),
)
# Number of sentences in the task, and number of lines of a text for the base.
TASK_SIZE = 300
LINES = 4
# Share of each kind of sentence, and in the base's text the share of each change.
KINDS = {"verb": 0.55, "verb with place": 0.2, "noun": 0.25}
CHANGES = {"repeat": 0.45, "plain": 0.35, "question": 0.2}


class Sentence(NamedTuple):
    """A sentence in polite and in plain form, each with its full stop."""

    polite: str
    plain: str

    def changed(self, change: str) -> str:
        """Return the polite sentence again (`repeat`), in plain form (`plain`), or as a question (`question`)."""
        return {"repeat": self.polite, "plain": self.plain, "question": self.polite.replace("。", "か。")}[change]


def every_sentence() -> dict[str, list[Sentence]]:
    """Return all sentences that the patterns can form, by kind and in a fixed order."""
    predicates = {
        "verb": list(_predicates("")),
        "verb with place": [forms for place in PLACES.split() for forms in _predicates(f"{place}で")],
        "noun": [(job + polite, job + plain) for job in JOBS.split() for polite, plain in NOUN_FORMS],
    }
    return {
        kind: [Sentence(f"{who}は{polite}。", f"{who}は{plain}。") for who in PEOPLE.split() for polite, plain in forms]
        for kind, forms in predicates.items()
    }


def pairs() -> list[Sentence]:
    """Return the sentences of the task, shuffled."""
    return list(_split()[0])


def documents(number: int, seed: int = 6) -> Iterator[str]:
    """Yield texts for the base: a polite sentence that is not in the task, then three lines made from it by CHANGES."""
    rng = random.Random(seed)
    _, others = _split()
    for _ in range(number):
        (kind,) = rng.choices(list(KINDS), list(KINDS.values()))
        sentence = rng.choice(others[kind])
        changes = rng.choices(list(CHANGES), list(CHANGES.values()), k=LINES - 1)
        yield "\n".join([sentence.polite, *map(sentence.changed, changes)])


@cache
def _split() -> tuple[tuple[Sentence, ...], dict[str, list[Sentence]]]:
    """Return the sentences of the task, and by kind all others."""
    rng = random.Random(0)
    chosen: list[Sentence] = []
    others = {}
    for kind, sentences in every_sentence().items():
        shuffled = rng.sample(sentences, len(sentences))
        count = round(KINDS[kind] * TASK_SIZE)
        chosen += shuffled[:count]
        others[kind] = shuffled[count:]
    rng.shuffle(chosen)
    return tuple(chosen), others


def _predicates(place: str) -> Iterator[tuple[str, str]]:
    """Yield each object with each verb as (polite, plain), after an optional place."""
    for (stem, present, past, negative), objects in VERBS.items():
        plain = (present, past, f"{negative}ない", f"{negative}なかった")
        for noun in objects.split():
            for ending, form in zip(POLITE_VERB, plain, strict=True):
                yield f"{place}{noun}を{stem}{ending}", f"{place}{noun}を{form}"
