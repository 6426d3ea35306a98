"""A model and its writers: the generator's texts token by token, whole characters, and the probabilities of what is drawn."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from course_lib.checkpoints import aozora
from course_lib.errors import CourseError, UsageError
from course_lib.generation.config import LEAST, GenerateConfig
from course_lib.generation.prefix_cache import Prefix, Shape
from course_lib.models import frozen_base
from course_lib.prefix import files
from course_lib.serving import engine
from course_lib.serving.request import RequestRow
from course_lib.serving.writers import Writers, token_name

PROMPT, NEW = "その夜、", 12
SAMPLED = GenerateConfig(strategy="sampling", seed=3, max_new_tokens=NEW)
LIKELIEST = replace(SAMPLED, temperature=LEAST)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The course's model with two prefixes that nobody has trained."""
    folder = tmp_path_factory.mktemp("aozora")
    for path in filter(Path.is_file, aozora.folder().iterdir()):
        (folder / path.name).symlink_to(path)
    shape = Shape.of(frozen_base.read_config(folder))
    torch.manual_seed(0)
    for name, length in (("tantei", 3), ("dowa", 5)):
        prefix = Prefix(torch.randn(length, shape.width), name)
        files.write(prefix, folder / f"prefixes/{name}.safetensors", base_folder=folder)
    return folder


@pytest.fixture(scope="module")
def writers(folder: Path) -> Writers:
    return Writers(folder)


@pytest.mark.parametrize("prompt", [PROMPT, "", "ｶﾞﾗｽ の 窓から"])
def test_the_likeliest_texts_are_those_of_the_generator(writers: Writers, prompt: str) -> None:
    assert [*writers.prefixes] == ["dowa", "tantei"]
    *_, written = writers.write(prompt, LIKELIEST)
    greedy = GenerateConfig(strategy="greedy", max_new_tokens=NEW)
    expected = writers.generator.generate([prompt] * 3, greedy, [None, *writers.prefixes.values()])
    assert written == [text.text for (text,) in expected] and len(set(written)) == 3


def test_all_texts_grow_by_each_token(writers: Writers) -> None:
    steps = [*writers.write(PROMPT, SAMPLED)]
    assert len(steps) == NEW
    for growing in zip(*steps):
        assert growing[0].startswith(PROMPT) and len(set(growing)) > NEW // 2
        assert all(longer.startswith(shorter) for shorter, longer in zip(growing, growing[1:]))


def test_half_a_character_is_held_back(writers: Writers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four bytes, an entry, three bytes; of a text that ends within the last one, these two have nothing to show."""
    ids = writers.generator.codec.encode("😀、龘")
    assert len(ids) == 8
    for length, last in ((8, ["😀、龘"]), (7, [])):
        tokens = map(torch.tensor, zip(ids, ids, ids))
        monkeypatch.setattr(engine, "draw", lambda *_, tokens=tokens: next(tokens))
        seen = dict.fromkeys(map(tuple, writers.write(PROMPT, replace(SAMPLED, max_new_tokens=length))))
        assert [*seen] == [(PROMPT + text,) * 3 for text in ("", "😀", "😀、", *last)]


@pytest.mark.parametrize(("temperature", "top_p", "shown"), [(1.0, 1.0, 8), (0.8, 0.95, 8), (2.0, 0.2, 5)])
def test_next_tokens_have_the_probabilities_with_which_they_are_drawn(
    writers: Writers, temperature: float, top_p: float, shown: int
) -> None:
    found = writers.next_tokens(PROMPT, replace(SAMPLED, temperature=temperature, top_p=top_p))
    # Without a prefix, drawn by the engine a thousand times; the logits come from transformers.
    generator, draws = writers.generator, 1000
    ids = [*generator.codec.opening, *generator.codec.encode(PROMPT)]
    with torch.inference_mode():
        logits = generator.model(torch.tensor([ids])).logits[0, -1] / temperature
    rows = [RequestRow(tuple(ids), 1, top_k=50, top_p=top_p, seed=seed) for seed in range(draws)]
    tokens = engine.draw(logits.expand(draws, -1), [engine.Generation(row, 2) for row in rows])
    drawn = Counter(token_name(generator, ids, token) for token in tokens.tolist())
    for name, chance in found[0].items():
        assert drawn[name] / draws == pytest.approx(chance, abs=0.05), name
    assert len(found[0]) == shown and [*found[0].values()] == sorted(found[0].values(), reverse=True)


def test_each_writer_has_its_own_next_tokens_and_writes_the_likeliest(writers: Writers) -> None:
    found = writers.next_tokens(PROMPT, replace(SAMPLED, temperature=1.0))
    for text, tokens in zip(next(writers.write(PROMPT, LIKELIEST)), found, strict=True):
        assert text == PROMPT + next(iter(tokens)).replace("↵", "\n")
    assert len({next(iter(tokens.items())) for tokens in found}) == 3
    # Nothing is left to chance: one token, and no others with a probability of 0.
    assert all([*tokens.values()] == [1] for tokens in writers.next_tokens(PROMPT, LIKELIEST))


def test_a_seed_repeats_the_texts_and_none_does_not(writers: Writers) -> None:
    def written(seed: int | None) -> list[str]:
        *_, texts = writers.write(PROMPT, replace(SAMPLED, temperature=2.0, seed=seed))
        return texts

    assert written(3) == written(3) != written(4)
    assert written(None) != written(None)


def test_without_a_prefix_the_others_change_nothing(writers: Writers, tmp_path: Path) -> None:
    for path in filter(Path.is_file, writers.folder.iterdir()):
        (tmp_path / path.name).symlink_to(path)
    alone = Writers(tmp_path)
    assert [text for (text,) in alone.write(PROMPT, SAMPLED)] == [texts[0] for texts in writers.write(PROMPT, SAMPLED)]


def test_what_does_not_fit_is_refused_in_one_line(writers: Writers, folder: Path) -> None:
    for read in (writers.write, writers.next_tokens):
        with pytest.raises(UsageError, match="leave 0 of 512 positions"):
            list(read(PROMPT * 600, GenerateConfig()))
    foreign = Prefix(torch.ones(1, writers.generator.shape.width), "foreign", "ab" * 32)
    files.write(foreign, folder / "prefixes/foreign.safetensors")
    with pytest.raises(CourseError, match="prefix foreign: trained on the weights abab"):
        Writers(folder)
