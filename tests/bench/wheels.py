"""Which pins of requirements.txt have no wheel for a system, so that a learner there needs a compiler.

    python -m tests.bench.wheels        # about 5 minutes; downloads about 1 GB into a folder that is removed

Asked of pip's index are the pins whose wheel here is made for a platform: the others, in Python alone, run anywhere. The
Triton server of the Makefile is asked, too. docs/systems.md has the latest result.
"""

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import distribution
from pathlib import Path

from course_lib.paths import REPOSITORY

# pip's names of a system, the newest first: a wheel for any of them will do.
SYSTEMS = {
    "macOS 14, Apple silicon": ["macosx_14_0_arm64"],
    "Linux, aarch64": ["manylinux_2_34_aarch64", "manylinux_2_28_aarch64", "manylinux2014_aarch64"],
}
TRITON = "nvidia-pytriton==0.7.0"


def platform_pins() -> list[str]:
    """Return the pins whose installed wheel is made for a platform, and that of the Triton server."""
    lines = (REPOSITORY / "requirements.txt").read_text(encoding="utf8").splitlines()
    pins = [pin for line in lines if (pin := line.partition("#")[0].strip())]
    wheels = {pin: distribution(pin.partition("==")[0].partition("[")[0]).read_text("WHEEL") or "" for pin in pins}
    return [pin for pin in pins if "-none-any" not in wheels[pin]] + [TRITON]


def has_wheel(pin: str, platforms: list[str]) -> bool:
    """Return whether pip finds a wheel of this pin for one of the platforms, for Python 3.11."""
    named = [part for platform in platforms for part in ("--platform", platform)]
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *named]
        done = subprocess.run(
            [*command, "--python-version", "3.11", "--dest", folder, pin], capture_output=True, text=True, check=False
        )
        return done.returncode == 0 and any(Path(folder).iterdir())


def main() -> None:
    """Print a line for each system."""
    pins = platform_pins()
    for system, platforms in SYSTEMS.items():
        with ThreadPoolExecutor(2) as pool:
            found = list(pool.map(lambda pin: has_wheel(pin, platforms), pins))  # noqa: B023
        missing = [pin for pin, there in zip(pins, found, strict=True) if not there]
        print(
            f"{system}: of {len(pins)} pins for a platform, without a wheel: {', '.join(missing) or 'none'}", flush=True
        )


if __name__ == "__main__":
    main()
