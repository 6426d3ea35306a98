"""The bundled runs of GPTSAN: each loads, its comments are true, and configs/README.md lists what is special to them."""

import re

import pytest
from course_lib.gptsan.config import GPTSanRunConfig
from course_lib.settings.config import load
from course_lib.settings.profiles import CONFIGS
from course_lib.training.memory import plan

RUNS = sorted(path.name for path in CONFIGS.glob("gptsan-*.yaml"))
README = (CONFIGS / "README.md").read_text(encoding="utf8").split("## GPTSAN")[1].split("\n## ")[0]


def spaced(value: int) -> str:
    return f"{value:,}".replace(",", " ")


@pytest.mark.parametrize("name", RUNS)
def test_comments_are_true(name):
    text, settings = (CONFIGS / name).read_text(encoding="utf8"), load(GPTSanRunConfig, name)
    assert settings.engine.output_dir.as_posix() == f"output/{name.removesuffix('.yaml')}"
    assert f"| `{name}` |" in README
    stated = re.search(r"^# Parameters: ([\d ]+), of which trained: ([\d ]+)$", text, re.MULTILINE)
    if settings.model.ignore is None and name.endswith("-extra.yaml"):
        assert stated is None  # an extra stage of a checkpoint that it does not name
        return
    assert stated
    found = settings.sizes()
    trained = sum(elements for elements, _ in found.trained)
    assert stated.groups() == (spaced(trained + sum(found.frozen)), spaced(trained))
    assert f"# Memory: {plan(settings, settings.launch.ranks or 1)}\n" in text
    assert f"| {stated[1]} | {stated[2]} |" in next(line for line in README.splitlines() if f"`{name}`" in line)
