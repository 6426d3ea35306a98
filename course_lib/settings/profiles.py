"""Profiles and settings files: which profile is current, where a settings file is, and what it says.

A profile chooses the settings of all products of the course. It is a file course_lib/configs/NAME.yaml, or a YAML file
of the user that extends one. Any settings file may extend another by its key `extends`.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

from course_lib.errors import UsageError
from course_lib.language.words import tr, tr_noop

CONFIGS = Path(__file__).parents[1] / "configs"
# Each bundled profile is a file: configs/<profile>.yaml. The first one is the default.
BUNDLED = ("tiny", "laptop", "colab", "single-gpu", "xl")
VARIABLE = "COURSE_PROFILE"


def from_environment() -> str:
    """Return the text of COURSE_PROFILE: the name of a bundled profile, or the path of a YAML file."""
    return os.environ.get(VARIABLE, BUNDLED[0])


def make_absolute() -> None:
    """Make the path in COURSE_PROFILE absolute, so that processes in other folders find the same profile."""
    chosen = from_environment()
    if chosen.endswith(".yaml") and Path(chosen).is_file():
        os.environ[VARIABLE] = str(Path(chosen).absolute())


def current_name() -> str:
    """Return the name of the current profile: that of its file, without `.yaml`.

    Raises UsageError if COURSE_PROFILE names no profile.
    """
    return profile_file().stem


def profile_file(profile: str | None = None) -> Path:
    """Return the file of a profile: the name of a bundled one or the path of a YAML file; None: the current profile.

    A relative path is relative to the current folder or, because a notebook runs in its own folder, to the checkout.
    Raises UsageError if it is no profile.
    """
    chosen = from_environment() if profile is None else profile
    if chosen in BUNDLED:
        return CONFIGS / f"{chosen}.yaml"
    candidates = (folder / chosen for folder in (Path.cwd(), Path(__file__).parents[2]))
    path = next((path for path in candidates if chosen.endswith(".yaml") and path.is_file()), None)
    where = f"{VARIABLE if profile is None else 'profile'}: {chosen}"
    if path is None:
        message = tr_noop("{where}: is not a profile; allowed: {all}, or the path of a YAML file that extends one")
        raise UsageError(tr(message, where=where, all=", ".join(BUNDLED)))
    if path.stem in BUNDLED:
        raise UsageError(tr("{where}: give the file another name than that of a bundled profile", where=where))
    if not extends_profile(path):
        raise UsageError(tr("{where} extends no profile; write a line such as `extends: tiny`", where=where))
    return path


def extends_profile(path: Path) -> bool:
    """Return whether a YAML file extends a bundled profile, directly or through other files."""
    *_, last = _chain(path)
    return last in {CONFIGS / f"{name}.yaml" for name in BUNDLED} - {path.absolute()}


def profile_of_option(path: Path | None) -> str | None:
    """Return the profile that the option `-c` names, or None if it is not given or names another file.

    `-c xl` and `-c xl.yaml` name the bundled profile unless there is such a file, which may extend a profile itself.
    """
    if path is None:
        return None
    if path.is_file():
        return str(path) if path.suffix == ".yaml" and extends_profile(path) else None
    name = str(path).removesuffix(".yaml")
    return name if name in BUNDLED else None


def beside(path: str | Path) -> Path:
    """Return the absolute form of a path in a profile, relative to its file's folder; to the current one if bundled."""
    file = profile_file()
    folder = Path.cwd() if file.parent == CONFIGS else file.parent.absolute()
    return folder / path


def find_settings_file(file: str | Path, folder: Path | None = None) -> Path:
    """Find a settings file in `folder`, here, beside the current profile's file, or in course_lib/configs.

    There, `.yaml` may be left out. Raises UsageError if there is no such file.
    """
    profile = from_environment()
    beside_profile = Path(profile).parent if profile.endswith(".yaml") else Path()
    folders = [folder or Path(), Path(), beside_profile, CONFIGS]
    candidates = [*(each / file for each in folders), CONFIGS / f"{file}.yaml"]
    path = next(filter(Path.is_file, candidates), None)
    if path is None:
        bundled = ", ".join((*BUNDLED, *runs()))
        raise UsageError(tr("{file}: no such config; allowed: a path, or one of {bundled}", file=file, bundled=bundled))
    return path


def runs() -> list[str]:
    """Return the names of the config files that come with the library, excluding the profiles."""
    return sorted(path.name for path in CONFIGS.glob("*.yaml") if path.stem not in BUNDLED)


def read_yaml(file: str | Path) -> dict[str, Any]:
    """Read a settings file as plain Python values, merged over those of the file that it `extends`.

    `find_settings_file` finds the file.
    """
    from course_lib.settings import yaml_values

    values: dict[str, Any] = {}
    for of_file in reversed(_chain(find_settings_file(file)).values()):
        values = yaml_values.over(values, of_file)
    values.pop("extends", None)
    return values


def _chain(path: Path) -> dict[Path, dict[str, Any]]:
    """Return the values of a settings file and then those of the files that it extends, directly or not, by path.

    Raises UsageError if one of them is no mapping, does not exist or extends itself.
    """
    path, files = path.absolute(), dict[Path, dict[str, Any]]()
    while path not in files:
        values = _content(path, path.stat().st_mtime_ns)
        if not isinstance(values, dict):
            raise UsageError(tr("{path}: expected `key: value` lines", path=path))
        files[path] = values
        base = values.get("extends")
        if base is None:
            return files
        if not isinstance(base, str):
            message = tr_noop("{path}: extends: {named!r}: expected the name or path of a file")
            raise UsageError(tr(message, path=path, named=base))
        path = find_settings_file(base, path.parent).absolute()
    raise UsageError(tr("{path} extends itself", path=path))


@cache
def _content(path: Path, modified: int) -> Any:
    """Return the content of a YAML file. It is read again when its modification time has changed."""
    from course_lib.settings import yaml_values

    return yaml_values.load(path)
