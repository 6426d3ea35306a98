"""Generation behind prefixes: each row as alone, in every strategy, against a loop without any cache."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from course_lib.errors import CourseError, UsageError
from course_lib.generation.character_mask import WholeCharacters
from course_lib.generation.codec import before_end
from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.generation.prefix_cache import Shape, past, positions
from course_lib.models.frozen_base import digest
from course_lib.prefix.files import Prefix
from course_lib.prefix.warm_start import cache_values
from course_lib.pretrain import text_codec
from course_lib.settings import config
from transformers import GPT2Config, LlamaConfig, LlamaForCausalLM

from tests.generation.test_prefix_cache import prefix
from tests.prefix import bases
from tests.prefix.bases import FAMILIES, POSITIONS

PROMPTS = ["早稲田大学で", "", "牛丼", "𠮷野家で牛丼を食べた。", "勉強"]


def how(**given: Any) -> GenerateConfig:
    return config.build(GenerateConfig, {"strategy": "greedy", "max_new_tokens": 12} | given)


@pytest.fixture(scope="module", params=FAMILIES)
def generator(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator:
    return Generator(bases.folder(tmp_path_factory.mktemp(request.param), request.param), text_codec.load)


def some() -> list[Prefix | None]:
    """Different lengths, one twice, and none."""
    first = Prefix(prefix(3), "a")
    return [first, Prefix(prefix(7, 1), "b"), None, first, Prefix(prefix(1, 2), "c")]


def recomputed(generator: Generator, prompt: str, given: Prefix | None, count: int) -> list[int]:
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
        ).logits[0, -1]
        assert generator.characters
        logits[generator.characters.blocked(torch.tensor([ids]), start + count - len(ids))[0]] = -torch.inf
        if len(ids) == start:
            logits[generator.end] = -torch.inf  # min_new_tokens
        ids.append(int(logits.argmax()))
        if ids[-1] == generator.end:
            return ids[start:-1]
    return ids[start:]


def written(generator: Generator, prompts: list[str], prefixes: list[Prefix | None], **given: Any) -> list[list[int]]:
    """The ids of every text that is generated, up to the end of its document: bytes that are no characters have no text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_codec.TextCodec, "continuation", lambda self, prompt, new: json.dumps(new))
        answers = generator.generate(prompts, how(**given), prefixes)
    return [json.loads(one.continuation) for texts in answers for one in texts]


def test_greedy_is_the_loop_without_a_cache(generator: Generator) -> None:
    prefixes = some()
    expected = [recomputed(generator, *pair, 12) for pair in zip(PROMPTS, prefixes, strict=True)]
    assert written(generator, PROMPTS, prefixes) == expected
    assert len({tuple(row) for row in expected}) == len(expected)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"repetition_penalty": 1.8},
        {"strategy": "beam", "num_beams": 3, "num_return_sequences": 2, "early_stopping": True},
        {"max_new_tokens": None},
    ],
)
def test_a_row_in_a_batch_is_the_row_alone(generator: Generator, given: dict[str, Any]) -> None:
    """max_new_tokens unset: each row goes to its own end, so that rows near a GPT-2's last position end earlier."""
    prefixes = some()
    together = written(generator, PROMPTS, prefixes, **given)
    alone = [written(generator, [prompt], [one], **given) for prompt, one in zip(PROMPTS, prefixes, strict=True)]
    assert together == [row for rows in alone for row in rows]
    assert {len(rows) for rows in alone} == {given.get("num_return_sequences", 1)}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, {}),
        (
            {"strategy": "sampling", "num_return_sequences": 5},
            {"do_sample": True, "top_k": 50, "top_p": 0.75, "num_return_sequences": 5},
        ),
        ({"strategy": "beam"}, {"num_beams": 4}),
    ],
)
def test_without_a_prefix_it_is_transformers_generate(
    generator: Generator, given: dict[str, Any], named: dict[str, Any]
) -> None:
    padding = list(range(len(generator.codec), generator.model.config.vocab_size))
    expected = []
    for prompt in PROMPTS:
        ids = torch.tensor([generator.codec.encode(prompt) or [generator.end]])
        torch.manual_seed(1024)
        options = {"max_new_tokens": 12, "min_new_tokens": 1, "suppress_tokens": padding} | named
        assert generator.characters
        options["logits_processor"] = [WholeCharacters(generator.characters, ids.shape[1] + 12)]
        rows = generator.model.generate(ids, attention_mask=torch.ones_like(ids), **options)[:, ids.shape[1] :].tolist()
        expected.append([before_end(row, generator.end) for row in rows])
    assert [written(generator, [prompt], [None], **given) for prompt in PROMPTS] == expected
    if not given:
        assert generator.generate(PROMPTS, how()) == [generator.generate([p], how(), [None])[0] for p in PROMPTS]


@pytest.mark.parametrize(
    "given", [{"strategy": "sampling", "num_return_sequences": 4}, {"strategy": "beam", "num_beams": 3}]
)
def test_a_prefix_of_real_tokens_continues_as_the_tokens(generator: Generator, given: dict[str, Any]) -> None:
    """Sampling and beams too: the same random numbers over the same probabilities."""
    head, tail = "早稲田大学で", "勉強"
    encode = generator.codec.encode
    assert encode(head) + encode(tail) == encode(head + tail)
    values = cache_values(generator.model, encode(head))
    found = written(generator, [tail], [Prefix(values, "t")], **given)
    assert found == written(generator, [head + tail], [None], **given)


def test_the_longest_continuation_counts_a_gpt2s_prefix(generator: Generator) -> None:
    """An empty prompt takes one position."""
    long = Prefix(prefix(POSITIONS - 4), "long")
    if generator.model.config.model_type == "gpt2":
        with pytest.raises(UsageError, match="leave 3 .* max_new_tokens: 4"):
            generator.generate([""], how(max_new_tokens=4), [long])
        assert len(written(generator, [""], [long], max_new_tokens=None, min_new_tokens=3)[0]) == 3
    else:
        assert len(written(generator, [""], [long], min_new_tokens=12)[0]) == 12


def test_a_prefix_of_another_model_is_refused(generator: Generator, tmp_path: Path) -> None:
    base, other = digest(generator.folder), "0123456789abcdef" * 4
    stranger = Prefix(prefix(3), "a", other, generator.shape)
    with pytest.raises(CourseError, match=f"trained on the weights 0123456789ab, the model's are {base[:12]}"):
        generator.generate(["牛丼"], how(), [stranger])
    assert Generator(generator.folder, text_codec.load, any_base=True).generate(["牛丼"], how(), [stranger])
    with pytest.raises(CourseError, match="96 numbers per position"):
        generator.generate(["牛丼"], how(), [Prefix(prefix(3)[:, :96], "a")])


def test_a_model_that_takes_no_prefix(tmp_path: Path) -> None:
    folder = bases.folder(tmp_path, "gpt2")
    size = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
    rows = GPT2Config.from_pretrained(folder).vocab_size
    LlamaForCausalLM(LlamaConfig(vocab_size=rows, **size, bos_token_id=2, eos_token_id=2)).save_pretrained(folder)
    llama = Generator(folder, text_codec.load)
    assert llama.generate(PROMPTS, how()) == [llama.generate([prompt], how())[0] for prompt in PROMPTS]
    with pytest.raises(CourseError, match="a llama model; allowed: gpt2, gpt_neox$"):
        llama.generate(["牛丼"], how(), [Prefix(prefix(3), "a")])
