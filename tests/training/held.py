"""A training command whose ranks wait after a step for a file: `python -m tests.training.held FILE STEP pretrain -c …`.

So a test can do something in the middle of a run, however fast or slow the machine is.
"""

import os
import sys
from pathlib import Path
from typing import Any

from course_lib.gptsan import task as gptsan
from course_lib.prefix import task as prefix
from course_lib.pretrain import gpt2

from tests.waiting import until

FILE, STEP = "COURSE_TEST_FILE", "COURSE_TEST_STEP"


class _Held:
    def model(self) -> Any:
        from course_lib.training import trainer

        class Held(trainer._Steps):
            def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
                super().on_step_end(args, state, control, **more)
                if state.global_step == int(os.environ[STEP]):
                    until(Path(os.environ[FILE]).exists)

        # The trainer makes its callbacks after the model.
        trainer._Steps = Held  # type: ignore[misc]
        return super().model()  # type: ignore[misc]


class HeldGpt2(_Held, gpt2.Gpt2):
    pass


class HeldGptsan(_Held, gptsan.Gptsan):
    pass


class HeldPrefix(_Held, prefix.PrefixTask):
    pass


def main() -> None:
    from course_lib import cli

    # The ranks inherit the environment, and import the class by its name.
    os.environ[FILE], os.environ[STEP] = sys.argv[1:3]
    gpt2.Gpt2 = HeldGpt2  # type: ignore[misc]
    gptsan.Gptsan = HeldGptsan  # type: ignore[misc]
    prefix.PrefixTask = HeldPrefix  # type: ignore[misc]
    cli.main(sys.argv[3:])


if __name__ == "__main__":
    from tests.training import held

    held.main()
