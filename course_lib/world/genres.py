"""The genres of the world, and its documents."""

import random
from collections.abc import Iterator
from pathlib import Path

import orjson

from course_lib.files import atomic_write
from course_lib.notebooks.progress import progress
from course_lib.world import day, match, recipe, tale, weather
from course_lib.world.genre import Document, Genre, write

GENRES: tuple[Genre, ...] = (tale.GENRE, weather.GENRE, recipe.GENRE, match.GENRE, day.DIARY, day.LETTER)


def documents(number: int, seed: int, genres: tuple[Genre, ...] = GENRES) -> Iterator[Document]:
    """Yield documents, each of a genre drawn with equal probability; document i depends on seed and i only.

    Its bits are those of its genre, its facts and its wordings together.
    """
    for index in range(number):
        yield write(genres, random.Random(f"{seed}/{index}"))


def write_documents(target: Path, number: int, seed: int, genres: tuple[Genre, ...] = GENRES) -> dict[str, float]:
    """Write documents as JSON Lines (text, genre, facts, bits), and return counts and the bits per character."""
    characters, bits = 0, 0.0
    with atomic_write(target) as out, progress(number, "documents", "writing") as bar:
        for document in documents(number, seed, genres):
            out.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
            characters, bits = characters + len(document.text), bits + document.bits
            bar.update()
    return {"documents": number, "characters": characters, "bits_per_character": bits / characters}
