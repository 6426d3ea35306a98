"""The bundled runs: each loads, its comments are true, and configs/README.md lists every knob."""

import re

import numpy as np
import pytest
import torch
from course_lib.errors import UsageError
from course_lib.gptsan.config import GptsanConfig
from course_lib.models.causal import build_model, model_config
from course_lib.prefix.config import PrefixConfig
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings.config import describe, load
from course_lib.settings.profiles import CONFIGS
from course_lib.training.lr_schedule import learning_rate
from course_lib.training.memory import plan
from course_lib.training.parameter_groups import decays
from transformers import AutoModelForCausalLM

RUNS = sorted(path.name for family in ("gpt2", "gpt-neox") for path in CONFIGS.glob(f"{family}-*.yaml"))
README = (CONFIGS / "README.md").read_text(encoding="utf8")


def comment(name: str, what: str) -> str:
    found = re.search(rf"^# {what}: (.*)$", (CONFIGS / name).read_text(encoding="utf8"), re.MULTILINE)
    assert found, f"{name} has no comment '{what}'"
    return found[1]


def number(text: str) -> int:
    return int(text.replace(" ", ""))


def test_all_sizes_are_there():
    assert [name.removesuffix(".yaml") for name in RUNS] == [
        "gpt-neox-3.6b", "gpt-neox-colab", "gpt-neox-tiny", "gpt2-1.3b", "gpt2-125m", "gpt2-300m", "gpt2-345m", "gpt2-6.7b", "gpt2-colab", "gpt2-tiny", "gpt2-xl",
    ]  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_comments_are_true(name):
    settings = load(PretrainConfig, name)
    stated = number(comment(name, "Parameters"))
    assert settings.model.parameters() == stated
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(model_config(settings.model))
    assert sum(p.numel() for p in model.parameters()) == stated

    memory = comment(name, "Memory")
    ranks = int(memory.split("per GPU on ")[1].split()[0])
    assert str(plan(settings, ranks)) == memory

    steps = r"(\d+) · (\d+) · (\d+) = ([\d ]+) sequences, ([\d ]+) tokens"
    stated_step = re.match(steps, comment(name, "Tokens per step"))
    assert stated_step
    micro, accumulation, of, total, tokens = map(number, stated_step.groups())
    batch = settings.batch.resolve(ranks)
    assert (micro, accumulation, of, total) == (batch.micro, batch.accumulation, ranks, batch.total)
    assert tokens == batch.total * settings.data.seq_length

    assert comment(name, "Meant for") and comment(name, "Recipe")
    assert settings.engine.output_dir.as_posix() == f"output/{name.removesuffix('.yaml')}"
    assert not settings.data.input and settings.data.tokenizer is None


def test_recipes_keep_the_published_numbers():
    xl, fleet = load(PretrainConfig, "gpt2-xl.yaml"), load(PretrainConfig, "gpt2-345m.yaml")
    assert (xl.batch.resolve(8).total, xl.batch.resolve(8).accumulation) == (528, 22)
    assert (xl.optimizer.lr.max, xl.optimizer.weight_decay, xl.optimizer.beta2) == (3e-4, 0.1, 0.95)
    assert (xl.zero.stage, xl.zero.offload_optimizer, xl.model.num_attention_heads) == (2, True, 20)
    assert (fleet.optimizer.lr.max, fleet.optimizer.lr.min, fleet.optimizer.weight_decay) == (5e-5, 1e-5, 0.01)
    assert (fleet.optimizer.lr.warmup_rate, fleet.optimizer.lr.decay_steps) == (0.01, 360_000)
    for name, samples, accumulation in (("gpt2-125m.yaml", 128, 8), ("gpt2-300m.yaml", 72, 9)):
        settings = load(PretrainConfig, name)
        assert (settings.batch.resolve(2).total, settings.batch.resolve(2).accumulation) == (samples, accumulation)
        assert (settings.optimizer.lr.min, settings.data.seq_length, settings.zero.stage) == (1e-6, 2048, 1)


@pytest.mark.parametrize(
    ("cls", "name"),
    [(PretrainConfig, "gpt2-tiny.yaml"), (GptsanConfig, "gptsan-tiny-extra.yaml"), (PrefixConfig, "prefix-tiny.yaml")],
)
def test_a_warm_up_longer_than_the_run_is_refused_when_the_settings_are_read(cls, name):
    """Not by a task, which reads its data first: that is for lengths which only the data know."""
    for overrides, end in (
        (["engine.max_steps=60", "optimizer.lr.warmup_steps=61"], "60 steps up to the last step"),
        (["optimizer.lr.decay_steps=50", "optimizer.lr.warmup_steps=61"], "50 steps up to optimizer.lr.decay_steps"),
    ):
        with pytest.raises(UsageError) as caught:
            load(cls, name, overrides)
        assert str(caught.value) == f"{name}: optimizer.lr.warmup_steps: 61 is not allowed: must not exceed the {end}"
    for fitting in (
        ["engine.max_steps=60", "optimizer.lr.warmup_steps=60"],
        ["engine.max_steps=60", "optimizer.lr.decay_steps=99", "optimizer.lr.warmup_steps=61"],
        ["engine.max_steps=null", "optimizer.lr.warmup_steps=61"],
    ):
        load(cls, name, fitting)


@pytest.mark.parametrize("name", ["gpt2-tiny.yaml", "gpt-neox-tiny.yaml"])
def test_a_shortened_toy_does_not_spike(name):
    """Of 60 steps those in which the frequencies are learned; a step too large for the initial weights costs nats, and its gradient shows it."""
    settings = load(PretrainConfig, name, ["engine.max_steps=60"])
    optimizer, vocabulary = settings.optimizer, settings.model.vocab_size
    torch.manual_seed(settings.engine.seed)
    model = build_model(settings.model)
    groups = [
        {"params": [p for n, p in model.named_parameters() if decays(n) == decayed], "weight_decay": decay}
        for decayed, decay in ((True, optimizer.weight_decay), (False, 0.0))
    ]
    adam = torch.optim.AdamW(groups, betas=(optimizer.beta1, optimizer.beta2), eps=optimizer.epsilon)
    rng, frequencies = np.random.default_rng(0), 1 / np.arange(1, vocabulary + 1)  # Zipf's law
    losses, norms = [], []
    for step in range(1, 25):
        tokens = torch.from_numpy(rng.choice(vocabulary, (8, 65), p=frequencies / frequencies.sum()))
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).logits.flatten(0, 1), tokens[:, 1:].flatten())
        adam.zero_grad()
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), optimizer.grad_clip).item())
        for group in adam.param_groups:
            group["lr"] = learning_rate(optimizer.lr, step, 60)
        adam.step()
        losses.append(loss.item())
    assert max(losses[12:]) < losses[11] + 1  # without a spike within 0.7: each step has other tokens
    assert max(norms[8:]) < 3


def test_readme_lists_every_setting():
    rows = re.findall(
        r"^\| `([a-z0-9_.]+)` \| (.*?) \| (.*?) \| (.*) \|$",
        README.split("## All settings")[1].split("##")[0],
        re.MULTILINE,
    )
    assert rows == [
        (key, kind.replace("|", "/"), default, what) for key, kind, default, what in describe(PretrainConfig)
    ]


def test_readme_maps_old_keys_to_real_ones():
    known = {row[0] for row in describe(PretrainConfig)}
    tables = README.split("## From FleetX")[1].split("## Traps")[0]
    ours = [
        cell
        for row in re.findall(r"^\| .*", tables, re.MULTILINE)
        for cell in re.findall(r"`([^`]+)`", row.split(" | ")[1])
    ]
    assert len(ours) > 60
    for key in ours:
        section = key.rstrip(".*")
        assert key in known or any(k.startswith(section + ".") for k in known), key


def test_readme_states_each_run():
    for name in RUNS:
        row = next(line for line in README.splitlines() if line.startswith(f"| `{name}`"))
        model = load(PretrainConfig, name).model
        shape = re.match(r"\| `.*?` \| (\d+) × (\d+), (\d+) \| ([\d ]+), (\d+) \| ([\d ]+) \|", row)
        assert shape, row
        assert tuple(map(number, shape.groups())) == (
            model.num_layers, model.hidden_size, model.num_attention_heads, model.vocab_size, model.max_position_embeddings, model.parameters(),
        )  # fmt: skip
    assert all(f"`{profile}.yaml`" in README for profile in ("tiny", "single-gpu", "xl"))
