"""The pins of a Colab freeze that matter here, as a constraints file: `python -m tests.colab.freeze FREEZE COMMIT DATE PYTHON`.

FREEZE is pip-freeze.gpu.txt of https://github.com/googlecolab/backend-info at a commit. Kept are the packages that the
course's set-up cell needs, directly or not, as installed here, and GUARDS.
"""

import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("notebook", "train", "serve")
# Preinstalled on Colab and not needed by the pins of requirements.txt: packages that the older omegaconf and IPython need,
# and packages whose demands on protobuf, grpcio, greenlet and IPython must still hold after the set-up cell.
GUARDS = (
    "antlr4-python3-runtime", "backcall", "decorator", "entrypoints", "google-ai-generativelanguage", "google-api-core",
    "google-auth", "googleapis-common-protos", "grpcio", "grpcio-status", "ipykernel", "ipython-genutils", "jupyter-server",
    "nbclassic", "nbconvert", "nest-asyncio", "notebook", "pickleshare", "pip", "proto-plus", "SQLAlchemy",
)  # fmt: skip


def needed(name: str, extras: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yields (package, extra) of an installed distribution's requirements that apply on this machine."""
    for text in metadata.requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield canonicalize_name(requirement.name), ""
            yield from ((canonicalize_name(requirement.name), extra) for extra in requirement.extras)


def closure(name: str, extras: tuple[str, ...]) -> set[str]:
    """The names of all distributions that an installed one needs with these extras."""
    found: set[tuple[str, str]] = set()
    waiting: list[tuple[str, str]] = [(canonicalize_name(name), extra) for extra in ("", *extras)]
    while waiting:
        package = waiting.pop()
        if package not in found:
            found.add(package)
            try:
                waiting += needed(package[0], (package[1],))
            except metadata.PackageNotFoundError:
                continue
    return {package for package, _ in found}


def pins(freeze: str) -> list[str]:
    """The lines `name==version` of a freeze that matter here, in its order."""
    wanted = closure("japanese-lm-course", EXTRAS) | {canonicalize_name(name) for name in GUARDS}
    lines = re.findall(r"^([\w.-]+)==(\S+)$", freeze, re.M)
    return [f"{name}=={version}" for name, version in lines if canonicalize_name(name) in wanted]


if __name__ == "__main__":
    file, commit, date, python = sys.argv[1:]
    print(f"# Colab's GPU runtime of {date}, Python {python}: pip-freeze.gpu.txt of googlecolab/backend-info at commit")
    print(f"# {commit}, cut to what the set-up cell touches (tests/colab/freeze.py).")
    print(*pins(Path(file).read_text(encoding="utf8")), sep="\n")
