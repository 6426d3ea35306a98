"""Generation: what a model learned from layouts.py's examples comes out, and every setting does what it says."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from course_lib.errors import CourseError, UsageError
from course_lib.gptsan.config import GenerateConfig
from course_lib.gptsan.generate import GPTSanGenerator, token_types
from course_lib.gptsan.hf_config import GPTSanConfig
from course_lib.gptsan.layouts import pack
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.swe import SPECIALS
from course_lib.gptsan.tokenizer import GPTSanTokenizer
from course_lib.settings import config

from tests.gptsan import handmade, make_port_fixture

DOG = "犬が吠えた。外は雨だ！\nわんわんわん、あああ。誰か来たのか？\nいや、風の音。"
CAT = "猫が寝ている。雨でも平気だ。\nみゃあ、ううう。鳥を見た！\n夢の中。"
LETTERS = sorted(set(DOG + CAT) - {"\n"})
CONTEXT, WIDTH = 48, 4
BROKEN = "\N{REPLACEMENT CHARACTER}"
SHAPE: dict[str, Any] = {
    "d_model": 64, "d_ff": 64, "d_ext": 64, "d_spout": WIDTH, "num_switch_layers": 1, "num_ext_layers": 1, "num_heads": 4,
    "num_experts": 2, "max_position_embeddings": CONTEXT + 1, "router_jitter_noise": 0.01,
}  # fmt: skip


def build(words: GPTSanTokenizer, **more: Any) -> GPTSanForCausalLM:
    torch.manual_seed(0)
    named = {"pad_token_id": words.swe.sep, "eos_token_id": words.swe.eot, "separator_token_id": words.swe.seg}
    return GPTSanForCausalLM(
        GPTSanConfig(vocab_size=len(words.swe) + 3, **SHAPE | named | more)
    )  # 3 rows that are no token


@pytest.fixture(scope="module")
def random(words: GPTSanTokenizer) -> GPTSanGenerator:
    """Weights so large that spout, prefix and routing are felt."""
    model = build(words, num_experts=4)
    with torch.no_grad():
        make_port_fixture.fill(model.state_dict())
    return GPTSanGenerator(model, words)


@pytest.fixture(scope="module")
def flat(words: GPTSanTokenizer) -> GPTSanGenerator:
    """The next token is 犬, 猫, 雨 or 夢 by shares that are known, whatever came before; all else is forbidden or far away."""
    model = build(words)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.final_logits_bias.fill_(-30.0)
        model.final_logits_bias[0, len(words.swe) :] = 9.0
        for name in "sot", "msk", "sep", "nottoken", "seg":
            model.final_logits_bias[0, getattr(words.swe, name)] = 9.0
        for letter, share in zip("犬猫雨夢", (0.4, 0.3, 0.2, 0.1)):
            model.final_logits_bias[0, LETTERS.index(letter)] = math.log(share)
    return GPTSanGenerator(model, words)


@pytest.mark.parametrize("text", [DOG, CAT, "外は雨だ！"])
def test_a_prompt_is_read_as_a_training_example(random: GPTSanGenerator, text: str) -> None:
    ((x, y),) = pack(text.splitlines(), random.encoding, random.special, 64)
    prompt = random.prompt(text + "\n")
    assert prompt.num_input == 1
    assert prompt.read == x[: len(prompt.read)]
    assert prompt.written == y[1 : 1 + len(prompt.written)]


@pytest.mark.parametrize("end", ["\r\n", "\r", "\u2028", "\x85", "\x0c"])
def test_every_line_break_of_a_prompt_is_a_newline(random: GPTSanGenerator, end: str) -> None:
    assert random.prompt(DOG.replace("\n", end), CAT.replace("\n", end)) == random.prompt(DOG, CAT)


@contextmanager
def boosted(generator: GPTSanGenerator, tokens: list[int], by: float) -> Iterator[None]:
    """Makes some tokens likelier."""
    bias = generator.model.final_logits_bias
    with torch.no_grad():
        bias[0, tokens] += by
        yield
        bias[0, tokens] -= by


@pytest.mark.parametrize("how", [{"greedy": True}, {"top_k": 7}, {"spout": "uniform", "temperature": 2.0}])
@pytest.mark.parametrize("length", [2, 30])
def test_characters_stay_whole(random: GPTSanGenerator, how: dict[str, Any], length: int) -> None:
    with boosted(random, [random.encoding.ids[f"<|byte{value}|>"] for value in range(255)], 2.0):
        number = 1 if "greedy" in how else 20
        settings = config.build(GenerateConfig, {"num_generate": number, "max_new_tokens": length} | how)
        texts = [text for context in ("", "犬が吠", "𠮷") for text in random.continue_text(context, settings)]
    assert not any(BROKEN in text for text in texts)


# Against other ways to the same


@pytest.mark.parametrize(("spout", "prefix"), [("none", ""), (0, ""), (2, "猫が寝ている。")])
def test_the_cache_gives_what_the_whole_gives(random: GPTSanGenerator, spout: int | str, prefix: str) -> None:
    settings = config.build(GenerateConfig, {"greedy": True, "spout": spout, "max_new_tokens": 20})
    prompt = random.prompt("犬が吠えた。", prefix)
    found = random.tokens(prompt, settings)[0].tolist()
    vector = torch.eye(WIDTH)[None, spout] if isinstance(spout, int) else None
    ids, written = list(prompt.read), list(prompt.written)
    for left, token in zip(range(20, 0, -1), found):
        types = token_types(torch.tensor([1 + len(prefix)]), len(ids), vector is not None)
        with torch.no_grad():
            logits = random.model(torch.tensor([ids]), token_type_ids=types, spout=vector).logits[0, -1]
        never = random.never | random.characters.blocked(torch.tensor([written]), left)[0]
        assert int(logits.masked_fill(never, -torch.inf).argmax()) == token
        written.append(token)
        ids.append(random.special.sep if token in random.special.ends else token)
    assert len(set(found)) > 3


def test_a_text_does_not_depend_on_those_beside_it(random: GPTSanGenerator) -> None:
    prompt = random.prompt("犬が吠えた。")
    alone = random.tokens(prompt, GenerateConfig(greedy=True, max_new_tokens=20))
    many = random.tokens(prompt, GenerateConfig(top_k=1, num_generate=40, max_new_tokens=20))
    assert many.shape == (40, alone.shape[1]) and (many == alone).all()


# Drawing


@pytest.mark.parametrize(
    ("settings", "shares"),
    [
        ({}, {"犬": 0.4, "猫": 0.3, "雨": 0.2, "夢": 0.1}),
        ({"top_k": 2}, {"犬": 4 / 7, "猫": 3 / 7}),
        ({"temperature": 0.5}, {"犬": 16 / 30, "猫": 9 / 30, "雨": 4 / 30, "夢": 1 / 30}),
    ],
)
def test_tokens_are_drawn_by_their_shares(
    flat: GPTSanGenerator, settings: dict[str, Any], shares: dict[str, float]
) -> None:
    found = Counter(flat.continue_text("", GenerateConfig(num_generate=1000, max_new_tokens=1, **settings)))
    assert set(found) == set(shares)
    for letter, share in shares.items():
        assert found[letter] / found.total() == pytest.approx(share, abs=0.07)


def test_the_same_seed_gives_the_same_texts(flat: GPTSanGenerator) -> None:
    settings = partial(GenerateConfig, num_generate=8, max_new_tokens=20)
    state = torch.get_rng_state()
    assert flat.continue_text("犬", settings(seed=3)) == flat.continue_text("犬", settings(seed=3))
    assert flat.continue_text("犬", settings(seed=3)) != flat.continue_text("犬", settings(seed=4))
    assert torch.equal(state, torch.get_rng_state())  # nobody else's numbers are drawn


def test_texts_end_at_the_end_of_text_and_with_the_positions(flat: GPTSanGenerator) -> None:
    eot = flat.special.eot
    assert len(flat.continue_text("犬")[0]) == CONTEXT + 1 - 2  # all positions but those of SOT and SEG
    with boosted(flat, [eot], math.log(0.3) + 30):  # one of the likely ones
        lengths = [len(text) for text in flat.continue_text("", GenerateConfig(num_generate=200))]
        assert 1.5 < np.mean(lengths) < 5 and len(set(lengths)) > 5
    with boosted(flat, [eot], math.log(0.5) + 30):  # the likeliest: taken, whatever is drawn
        assert flat.continue_text("犬", GenerateConfig(num_generate=50)) == ["犬"] * 50


# What is refused


def test_what_the_model_does_not_have_is_one_line(random: GPTSanGenerator, words: GPTSanTokenizer) -> None:
    with pytest.raises(UsageError, match="class 4"):
        random.continue_text("", GenerateConfig(spout="4"))
    without = GPTSanGenerator(build(words, d_spout=0), words)
    with pytest.raises(UsageError, match="no spout"):
        without.continue_text("", GenerateConfig(spout=0))
    assert without.continue_text("犬", GenerateConfig(greedy=True))[0].startswith("犬")


def test_what_does_not_fit_is_one_line(flat: GPTSanGenerator) -> None:
    longest = "猫雨" * 23
    assert len(flat.continue_text(longest)[0]) == len(longest) + 1
    with pytest.raises(UsageError, match="context: 49 tokens"):
        flat.continue_text("犬", prefix=longest)


def test_a_folder_with_another_tokenizer_is_one_line(random: GPTSanGenerator, tmp_path: Path) -> None:
    random.model.save_pretrained(tmp_path)
    handmade.write(tmp_path, [*LETTERS, *"abcd", *SPECIALS])
    with pytest.raises(CourseError, match="do not belong together"):
        GPTSanGenerator.open(tmp_path)
