"""Profiles and settings files: which profile is current, where a settings file is, and what it says.

A profile chooses the settings of all products of the course. It is a file course_lib/configs/NAME.yaml, or a YAML file
of the user's own that extends one. Any settings file may extend another by its key `extends`.
"""

import os
from pathlib import Path
from typing import Any

from course_lib.errors import UsageError
from course_lib.language.words import mark, tr

CONFIGS = Path(__file__).parents[1] / "configs"
# Each bundled profile is a file: configs/<profile>.yaml. The first one is the default.
BUNDLED = ("tiny", "colab", "single-gpu", "xl")
VARIABLE = "COURSE_PROFILE"

# path → (modification times of the files that it was read from, values)
_read: dict[Path, tuple[dict[Path, int], dict[str, Any]]] = {}


def current() -> str:
    """Return the current profile, as in COURSE_PROFILE: the name of a bundled profile, or the path of a YAML file."""
    return os.environ.get(VARIABLE, BUNDLED[0])


def make_absolute() -> None:
    """Make the path in COURSE_PROFILE absolute, so that processes in other folders find the same profile."""
    if current().endswith(".yaml") and Path(current()).is_file():
        os.environ[VARIABLE] = str(Path(current()).absolute())


def name() -> str:
    """Return the name of the current profile: that of its file, without `.yaml`. Raises UsageError as `file` does."""
    return file().stem


def file(profile: str | None = None) -> Path:
    """Return the file of a profile: the name of a bundled one or the path of a YAML file; None: the current profile.

    A relative path is relative to the current folder or, because a notebook runs in its own folder, to the checkout.
    """
    chosen = current() if profile is None else profile
    if chosen in BUNDLED:
        return CONFIGS / f"{chosen}.yaml"
    candidates = (folder / chosen for folder in (Path.cwd(), Path(__file__).parents[2]))
    path = next((path for path in candidates if chosen.endswith(".yaml") and path.is_file()), None)
    where = f"{VARIABLE if profile is None else 'profile'}: {chosen}"
    if path is None:
        message = mark("{where}: is not a profile; allowed: {all}, or the path of a YAML file that extends one")
        raise UsageError(tr(message, where=where, all=", ".join(BUNDLED)))
    if path.stem in BUNDLED:
        raise UsageError(tr("{where}: give the file another name than that of a bundled profile", where=where))
    if not extends_profile(path):
        raise UsageError(tr("{where} extends no profile; write a line such as `extends: tiny`", where=where))
    return path


def extends_profile(path: Path) -> bool:
    """Return whether a YAML file extends a bundled profile, directly or through other files."""
    path = path.absolute()
    _values(path)
    return list(_read[path][0])[-1] in {CONFIGS / f"{name}.yaml" for name in BUNDLED} - {path}


def named(file: Path | None) -> str | None:
    """Return the profile that `-c` names, or None if it does not name one.

    `-c xl` and `-c xl.yaml` name the bundled profile unless there is such a file, which may extend a profile itself.
    """
    if file and file.is_file():
        return str(file) if file.suffix == ".yaml" and extends_profile(file) else None
    name = str(file).removesuffix(".yaml")
    return name if name in BUNDLED else None


def beside(path: str | Path) -> Path:
    """Return the absolute form of a path in a profile, relative to its file's folder; to the current one if bundled."""
    own = file()
    return (Path.cwd() if own.parent == CONFIGS else own.parent.absolute()) / path


def find(file: str | Path, folder: Path | None = None) -> Path:
    """Find a settings file in `folder`, here, beside the current profile's file, or in course_lib/configs.

    There, `.yaml` may be left out. Raises UsageError if there is no such file.
    """
    own = Path(current()).parent if current().endswith(".yaml") else Path()
    candidates = [(folder or Path()) / file, Path(file), own / file, CONFIGS / file, CONFIGS / f"{file}.yaml"]
    path = next(filter(Path.is_file, candidates), None)
    if path is None:
        bundled = ", ".join((*BUNDLED, *runs()))
        raise UsageError(tr("{file}: no such config; allowed: a path, or one of {bundled}", file=file, bundled=bundled))
    return path


def runs() -> list[str]:
    """Return the names of the config files that come with the library, excluding the profiles."""
    return sorted(path.name for path in CONFIGS.glob("*.yaml") if path.stem not in BUNDLED)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping as plain Python values, merged over those of the file that its key `extends` names."""
    return _values(path.absolute())


def _values(path: Path, above: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the values of a file, which the files `above` extend; cached until a file that it needs changes."""
    if path in _read and all(_stamp(each) == then for each, then in _read[path][0].items()):
        return _read[path][1]
    from course_lib.settings import yaml_values

    values, files = yaml_values.load(path), [path]
    if path in above or not isinstance(values, dict):
        wrong = mark("{path} extends itself") if path in above else mark("{path}: expected `key: value` lines")
        raise UsageError(tr(wrong, path=path))
    if (named := values.pop("extends", None)) is not None:
        if not isinstance(named, str):
            message = mark("{path}: extends: {named!r}: expected the name or path of a file")
            raise UsageError(tr(message, path=path, named=named))
        base = find(named, path.parent).absolute()
        values = yaml_values.over(_values(base, (*above, path)), values)
        files += _read[base][0]
    _read[path] = {each: _stamp(each) for each in files}, values
    return _read[path][1]


def _stamp(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0
