"""The commands in docs/: each exists, has these options, and its settings are valid."""

import re
import shlex
from pathlib import Path

import pytest
from course_lib.command_line import verbs
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config

DOCS = Path(__file__).parents[1] / "docs"
COMMANDS = [
    (path.name, line.strip())
    for path in sorted(DOCS.rglob("*.md"))
    for line in path.read_text(encoding="utf8").splitlines()
    if re.match(r" {4}(srun .*)?course [a-z]", line)
]


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 15


@pytest.mark.parametrize(("name", "line"), COMMANDS)
def test_a_command_can_be_parsed(name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(line.partition(" # ")[0].partition(" > ")[0])
    words = words[words.index("course") + 1 :]
    number = max(count for count in range(1, min(len(words), 2) + 1) if " ".join(words[:count]) in verbs.VERBS)
    function, settings, _ = verbs.VERBS[" ".join(words[:number])]
    given = verbs._Verb(words[number - 1], function, settings, "").make_context(words[number - 1], words[number:])
    if words[0] == "pretrain":
        rank = given.params["node_rank"]
        overrides = [*given.params["overrides"], *([] if rank is None else [f"launch.node_rank={rank}"])]
        config.load(PretrainConfig, given.params["config"], overrides)
