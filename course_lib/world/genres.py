"""The genres of the world, and its documents."""

import random
from collections.abc import Iterator

from course_lib.world import day, match, recipe, tale, weather
from course_lib.world.genre import Document, Genre, write

GENRES: tuple[Genre, ...] = (tale.GENRE, weather.GENRE, recipe.GENRE, match.GENRE, day.DIARY, day.LETTER)


def documents(number: int, seed: int, genres: tuple[Genre, ...] = GENRES) -> Iterator[Document]:
    """Yield documents, each of a genre drawn with equal probability; document i depends on seed and i only.

    Its bits are those of its genre, its facts and its wordings together.
    """
    for place in range(number):
        yield write(genres, random.Random(f"{seed}/{place}"))
