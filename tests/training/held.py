"""A training command whose ranks wait in a step for a file: `python -m tests.training.held FILE STEP pretrain -c …`.

So a test can do something in the middle of a run, however fast or slow the machine is.
"""

import os
import sys
from pathlib import Path
from typing import Any

from course_lib.gptsan.run import GPTSanRun
from course_lib.prefix.run import PrefixRun
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.training import log

from tests.waiting import until

FILE, STEP = "COURSE_TEST_FILE", "COURSE_TEST_STEP"
SITE = Path(__file__).with_name("held_site")


def hold() -> None:
    """Make the loss of each kind of run wait in a step, of which the log does not yet tell."""
    for kind in (Gpt2, GPTSanRun, PrefixRun):
        kind.loss = _waiting(kind.loss)  # type: ignore[method-assign]


def _waiting(loss: Any) -> Any:
    def waits(self: Any, model: Any, batch: Any) -> Any:
        steps = [entry["step"] for entry in log.read(self.settings.engine.output_dir)]
        if max(steps, default=0) == int(os.environ[STEP]) - 1:
            until(Path(os.environ[FILE]).exists)
        return loss(self, model, batch)

    return waits


def main() -> None:
    from course_lib import cli

    os.environ[FILE], os.environ[STEP] = sys.argv[1:3]
    # for the ranks, if there are several
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(SITE), os.environ.get("PYTHONPATH")]))
    hold()
    cli.main(sys.argv[3:])


if __name__ == "__main__":
    main()
