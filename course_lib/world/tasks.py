"""Tasks on documents of the world: their titles, questions about their facts, polite sentences made plain."""

import random
import re
from collections.abc import Iterator
from pathlib import Path

import orjson

from course_lib.world import day
from course_lib.world.check import check, readings
from course_lib.world.genre import Document, wordings
from course_lib.world.genres import GENRES, documents

# Facts that documents repeat. Recipes have no title: with them, the prefix of notebook 06 needs more steps.
TITLES = {
    "tale": "{who}と{color}{item}",
    "weather": "{area}の天気",
    "match": "{winner}の勝ち",
    "day": "{place}へ行った日",
}
# A question, and behind it the answer as it stands in the text. The first MOST whose facts a document has are asked.
MOST = 4
QUESTIONS = wordings("""
tale     {who}がなくしたものは何ですか。{item}
         {who}と一緒にいた{animal}の名前は何ですか。{pet}
         {item}はどこにありましたか。{spot}
         {who}を助けたのはだれですか。{helper}
         {item}をなくしたのはだれですか。{who}
weather  明日の{area}は、朝はどんな天気ですか。{sky}
         明日の最高気温は何度ですか。{high}度
         明日の最低気温は何度ですか。{low}度
         風はどちらから吹きますか。{wind}
recipe   この{dish}は何人分ですか。{people}人分
         {vegetable}は何個使いますか。{count}個
         {meat}は何グラム使いますか。{grams}グラム
         全部で何分かかりますか。{total}分
match    試合に勝ったのはどこですか。{winner}
         試合はどこで行われましたか。{venue}
         活躍したのはどの選手ですか。{hero}
         何の試合でしたか。{sport}
day      だれと出かけましたか。{friend}
         どこへ行きましたか。{place}
         昼に何を食べましたか。{meal}
         {fruit}を何個買いましたか。{count}個
         いつのことですか。{day}
""")
SAME = {"diary": "day", "letter": "day"}
TITLED = tuple(genre for genre in GENRES if SAME.get(genre.name, genre.name) in TITLES)
# Kinds of a letter's sentences whose facts other sentences of the same letter repeat, or that have none.
REPEATED = ("trip", "rain", "snow", "feeling", "wet", "frozen")


def title(document: Document) -> str | None:
    """Return the title of a document; it states facts of the text. None if the genre has no title."""
    wording = TITLES.get(SAME.get(document.genre, document.genre))
    return wording.format(**document.facts) if wording else None


def questions(document: Document) -> list[tuple[str, str, str]]:
    """Return up to four questions about a document: question, answer, and the name of the fact that is asked for."""
    found = []
    for wording in QUESTIONS[SAME.get(document.genre, document.genre)]:
        question, end, answer = wording.partition("。")
        fact = answer[1 : answer.index("}")]
        if fact in document.facts:
            found.append(((question + end).format(**document.facts), answer.format(**document.facts), fact))
    return found[:MOST]


def asked_for(question: str) -> str | None:
    """Return the name of the fact that a question of QUESTIONS asks for, as in `questions`; None for another one."""
    for wordings_of_genre in QUESTIONS.values():
        for wording in wordings_of_genre:
            form, _, answer = wording.partition("。")
            if re.fullmatch(re.sub(r"\{\w+\}", ".+", form), question.removesuffix("。")):
                return answer[1 : answer.index("}")]
    return None


def plain(sentence: str) -> str | None:
    """Return a polite sentence of a letter in plain form; None if it has none in the world."""
    for reading in readings(sentence):
        # A diary names the day by its own words: today.
        if reading.genre is day.LETTER and reading.kind in day.DIARY.wordings and reading.kind != "day":
            # The polite and the plain wording have the same index.
            index = day.LETTER.wordings[reading.kind].index(reading.wording)
            return day.DIARY.wordings[reading.kind][index].format(**reading.facts)
    return None


def styles(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the sentences of a letter that have a plain form: polite, plain."""
    for sentence in check(document.text).sentences:
        if told := plain(sentence):
            yield sentence, told


def write_pairs(folder: Path, number: int, seed: int) -> dict[str, int]:
    """Write a file of pairs for each task, with a prompt and its target a line; return their lengths.

    `title` has a pair of each of `number` documents TITLED, `question` has one question about each of all genres.
    `plain` and `plain-once` have each sentence of as many letters once, in random order: `plain` those of the kinds
    REPEATED, `plain-once` the others, whose facts no other sentence of a letter repeats.
    """
    found: dict[str, dict[str, str]] = {"title": {}, "question": {}, "plain": {}, "plain-once": {}}
    for index, document in enumerate(documents(number, seed)):
        asked = questions(document)
        question, answer, _fact = asked[index % len(asked)]
        found["question"][document.text + question] = answer
    for document in documents(number, seed, TITLED):
        found["title"][document.text] = title(document) or ""
    for letter in documents(number, seed, (day.LETTER,)):
        for polite, told in styles(letter):
            repeated = readings(polite)[0].kind in REPEATED
            found["plain" if repeated else "plain-once"][polite] = told
    for task in ("plain", "plain-once"):
        found[task] = dict(random.Random(seed).sample([*found[task].items()], len(found[task])))
    for task, pairs in found.items():
        lines = (orjson.dumps({"prompt": prompt, "target": target}) + b"\n" for prompt, target in pairs.items())
        (folder / f"{task}.jsonl").write_bytes(b"".join(lines))
    return {task: len(pairs) for task, pairs in found.items()}
