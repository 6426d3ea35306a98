"""The bundled runs of prefix tuning: each loads, its comments are true, and configs/README.md lists every knob and every flag of the original."""

import re

import pytest
from course_lib.command_line import runs as memory_cli
from course_lib.gptsan.config import GPTSanRunConfig
from course_lib.prefix import products
from course_lib.prefix.config import PrefixConfig
from course_lib.settings.config import describe, load
from course_lib.settings.profiles import BUNDLED, CONFIGS
from course_lib.training.memory import plan

from tests import configs_page

RUNS = sorted(path.name for path in CONFIGS.glob("prefix-*.yaml"))
README = (CONFIGS / "README.md").read_text(encoding="utf8").split("## Prefix tuning")[1].split("\n## ")[0]


def spaced(value: int) -> str:
    return f"{value:,}".replace(",", " ")


@pytest.mark.parametrize("name", RUNS)
def test_comments_are_true(name):
    text, settings = (CONFIGS / name).read_text(encoding="utf8"), load(PrefixConfig, name)
    assert memory_cli.planned(CONFIGS / name, None) == settings
    assert settings.engine.output_dir.as_posix() == f"output/{name.removesuffix('.yaml')}"
    stated = re.search(r"^# Parameters: ([\d ]+), of which trained: ([\d ]+), deployed: ([\d ]+)$", text, re.MULTILINE)
    assert stated
    found, shape = settings.sizes(), settings.model.base_shape()
    trained = sum(elements for elements, _ in found.trained)
    deployed = settings.model.length * 2 * shape.num_layers * shape.hidden_size
    assert stated.groups() == (spaced(found.parameters), spaced(trained), spaced(deployed))
    assert f"# Memory: {plan(settings, settings.launch.ranks)}\n" in text
    row = next(line for line in README.splitlines() if line.startswith(f"| `{name}`"))
    model = settings.model
    assert f"| {model.length}, {model.input_dim}, {model.hidden_dim} | {' | '.join(stated.groups())} |" in row


@pytest.mark.parametrize(
    ("heading", "kind", "sections"),
    [
        ("## Prefix tuning", PrefixConfig, ("kind", "task_name", "model", "data")),
        ("## GPTSAN", GPTSanRunConfig, ("kind", "model", "data", "spout", "loss")),
    ],
)
def test_readme_lists_every_setting(heading, kind, sections):
    text = (CONFIGS / "README.md").read_text(encoding="utf8").split(heading)[1].split("\n## ")[0]
    of_kind = [row for row in describe(kind) if row.key.split(".")[0] in sections]
    assert configs_page.rows(text) == configs_page.expected(of_kind)


@pytest.mark.parametrize("profile", BUNDLED)
def test_every_profile_has_two_tasks_and_short_runs_that_one_process_can_make(profile, monkeypatch):
    monkeypatch.setenv("COURSE_PROFILE", profile)
    tasks = products.task_settings()
    assert {name: settings.data.form for name, settings in tasks.items()} == {"plain": "pairs", "title": "pairs"}
    for settings in tasks.values():
        steps, ranks = settings.engine.max_steps, settings.launch.ranks
        assert steps and ranks
        # The course's samples are few: no sample is read more than a hundred times.
        assert steps * settings.batch.resolve(ranks).total < 100 * 240
        assert steps > 40
    assert {"embedding", "LoRA"} <= products.quick().rates.keys()
