"""Generation behind prefixes: each row as alone, in every strategy, against a loop without any cache."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from course_lib import config
from course_lib.errors import CourseError, UsageError
from course_lib.prefix.base import digest
from course_lib.prefix.cache import Shape, past, positions
from course_lib.prefix.files import Prefix
from course_lib.prefix.generate import PrefixGenerator, side_by_side
from course_lib.prefix.warm_start import cache_values
from course_lib.pretrain.generate import Generator
from course_lib.pretrain.generation import GenerateConfig

from tests.prefix import bases
from tests.prefix.bases import FAMILIES, POSITIONS
from tests.prefix.test_cache import prefix
from tests.pretrain import models

PROMPTS = ["早稲田大学で", "", "牛丼", "𠮷野家で牛丼を食べた。", "勉強"]


def how(**given: Any) -> GenerateConfig:
    return config.build(GenerateConfig, {"strategy": "greedy", "max_new_tokens": 12} | given)


@pytest.fixture(scope="module", params=FAMILIES)
def generator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PrefixGenerator:
    return PrefixGenerator(bases.folder(tmp_path_factory.mktemp(request.param), request.param))


def some() -> list[Prefix | None]:
    """Different lengths, one twice, and none."""
    first = Prefix(prefix(3), "a")
    return [first, Prefix(prefix(7, 1), "b"), None, first, Prefix(prefix(1, 2), "c")]


def recomputed(generator: PrefixGenerator, prompt: str, given: Prefix | None, count: int) -> list[int]:
    """The likeliest ids, the whole text computed anew at each step: nothing of `generate`, no growing cache."""
    model, ids = generator.model, generator.codec.encode(prompt) or [generator.end]
    start = len(ids)
    while len(ids) < start + count:
        mask = torch.ones(1, len(ids), dtype=torch.long)
        cache, front = past([given.values if given else None], Shape.of(model.config), torch.float32, "cpu")
        logits = model(
            torch.tensor([ids]),
            past_key_values=cache,
            attention_mask=torch.cat([front, mask], 1),
            position_ids=positions(front.sum(1), mask),
        ).logits[0, -1, : len(generator.codec)]
        if len(ids) == start:
            logits[generator.end] = -torch.inf  # min_new_tokens
        ids.append(int(logits.argmax()))
        if ids[-1] == generator.end:
            return ids[start:-1]
    return ids[start:]


def written(
    generator: PrefixGenerator, prompts: list[str], prefixes: list[Prefix | None], **given: Any
) -> list[list[int]]:
    """The ids of every text that is generated, up to the end of its document: bytes that are no characters have no text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator, "_continuation", lambda _, new: json.dumps(new))
        answers = generator.generate(prompts, prefixes, how(**given))
    seen = [json.loads(one.continuation) for texts in answers for one in texts]
    return [ids[: ids.index(generator.end)] if generator.end in ids else ids for ids in seen]


def test_greedy_is_the_loop_without_a_cache(generator: PrefixGenerator) -> None:
    prefixes = some()
    expected = [recomputed(generator, *pair, 12) for pair in zip(PROMPTS, prefixes, strict=True)]
    assert written(generator, PROMPTS, prefixes) == expected
    assert len({tuple(row) for row in expected}) == len(expected)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"repetition_penalty": 1.8},
        {"no_repeat_ngram_size": 1},
        {"min_new_tokens": 12},
        {"strategy": "beam", "num_beams": 3, "num_return_sequences": 2, "early_stopping": True},
        {"max_new_tokens": None},
    ],
)
def test_a_row_in_a_batch_is_the_row_alone(generator: PrefixGenerator, given: dict[str, Any]) -> None:
    """max_new_tokens unset: each row goes to its own end, so that rows near a GPT-2's last position end earlier."""
    prefixes = some()
    together = written(generator, PROMPTS, prefixes, **given)
    alone = [written(generator, [prompt], [one], **given) for prompt, one in zip(PROMPTS, prefixes, strict=True)]
    assert together == [row for rows in alone for row in rows]
    assert {len(rows) for rows in alone} == {given.get("num_return_sequences", 1)}


def test_an_empty_prompt_begins_a_document_and_a_prefix_changes_it(generator: PrefixGenerator) -> None:
    one, two = Prefix(prefix(3), "a"), Prefix(prefix(7, 1), "b")
    assert len({tuple(ids) for ids in written(generator, [""] * 3, [None, one, two])}) == 3


@pytest.mark.parametrize("given", [{}, {"strategy": "sampling", "num_return_sequences": 5}, {"strategy": "beam"}])
def test_without_prefixes_it_is_the_generator_of_chapter_4(generator: PrefixGenerator, given: dict[str, Any]) -> None:
    plain = Generator(generator.folder)
    for prompt in PROMPTS:
        assert generator.generate([prompt], [None], how(**given)) == [plain.generate(prompt, how(**given))]
    if not given:
        assert generator.generate(PROMPTS, [None] * 5, how()) == [plain.generate(prompt, how()) for prompt in PROMPTS]


@pytest.mark.parametrize(
    "given", [{}, {"strategy": "sampling", "num_return_sequences": 4}, {"strategy": "beam", "num_beams": 3}]
)
def test_a_prefix_of_real_tokens_continues_as_the_tokens(generator: PrefixGenerator, given: dict[str, Any]) -> None:
    """Sampling and beams too: the same random numbers over the same probabilities."""
    head, tail = "早稲田大学で", "勉強"
    encode = generator.codec.encode
    assert encode(head) + encode(tail) == encode(head + tail)
    values = cache_values(generator.model, encode(head))
    found = written(generator, [tail], [Prefix(values, "t")], **given)
    assert found == written(generator, [head + tail], [None], **given)


def test_sampling_takes_its_seed_and_gives_each_row_its_samples(generator: PrefixGenerator) -> None:
    given = {"strategy": "sampling", "num_return_sequences": 3, "top_p": 1.0, "top_k": 0, "temperature": 3.0}
    first = written(generator, PROMPTS, some(), **given)
    assert first == written(generator, PROMPTS, some(), **given) != written(generator, PROMPTS, some(), **given, seed=1)
    assert len({tuple(ids) for ids in first}) == 15


def test_the_model_is_not_touched(generator: PrefixGenerator) -> None:
    before = {name: tensor.clone() for name, tensor in generator.model.state_dict().items()}
    bare = written(generator, PROMPTS, [None] * 5)
    generator.generate(PROMPTS, some(), how(strategy="beam"))
    assert all(torch.equal(tensor, before[name]) for name, tensor in generator.model.state_dict().items())
    assert written(generator, PROMPTS, [None] * 5) == bare


def test_the_room_counts_a_gpt2s_prefix(generator: PrefixGenerator) -> None:
    """An empty prompt takes one position."""
    long = Prefix(prefix(POSITIONS - 4), "long")
    if generator.model.config.model_type == "gpt2":
        with pytest.raises(UsageError, match=f"max_new_tokens: 4 .* leave 3; the prefix takes {POSITIONS - 4} of them"):
            generator.generate([""], [long], how(max_new_tokens=4))
        with pytest.raises(UsageError, match=f"prompt: {POSITIONS + 1} tokens are not allowed"):
            generator.generate([""], [Prefix(prefix(POSITIONS), "longer")], how(max_new_tokens=None))
        assert len(written(generator, [""], [long], max_new_tokens=None, min_new_tokens=3)[0]) == 3
    else:
        assert len(written(generator, [""], [long], min_new_tokens=12)[0]) == 12


def test_a_prefix_of_another_model_is_refused(generator: PrefixGenerator, tmp_path: Path) -> None:
    own, other = digest(generator.folder), "0123456789abcdef" * 4
    assert generator.generate(["牛丼"], [Prefix(prefix(3), "a", own, generator.shape)], how())
    stranger = Prefix(prefix(3), "a", other, generator.shape)
    with pytest.raises(CourseError, match=f"trained on the weights 0123456789ab, the model's are {own[:12]}"):
        generator.generate(["牛丼"], [stranger], how())
    assert PrefixGenerator(generator.folder, any_base=True).generate(["牛丼"], [stranger], how())
    with pytest.raises(CourseError, match="96 numbers per position"):
        generator.generate(["牛丼"], [Prefix(prefix(3)[:, :96], "a")], how())
    with pytest.raises(UsageError, match="1 for 2 prompts"):
        generator.generate(["牛丼", ""], [None], how())


def test_side_by_side(generator: PrefixGenerator) -> None:
    prefixes = [Prefix(prefix(3), "a"), Prefix(prefix(7, 1), "b")]
    rows = side_by_side(generator.folder, ["牛丼", ""], prefixes, how())
    assert [(row.prompt, row.task) for row in rows] == [(p, t) for p in ("牛丼", "") for t in ("", "a", "b")]
    assert [row.texts for row in rows[1:3]] == [generator.generate(["牛丼"], [one], how())[0] for one in prefixes]
    assert models.SENTENCE not in {one.text for row in rows for one in row.texts}
