"""Safe loader for .pt files from untrusted sources, which runs no code from them.

A pickle can call any function by name. `torch.load(weights_only=True)` only calls those that rebuild tensors, but
Megatron and DeepSpeed also store training arguments, which are read, and objects, which become an `Inert`.
"""

import pickle
import re
import warnings
import zipfile
from argparse import Namespace
from collections.abc import Mapping
from enum import EnumType
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from course_lib.errors import CourseError
from course_lib.files import require_file

# Names that are replaced by Inert; nothing from these packages is imported or called.
HARMLESS = re.compile(
    r"(megatron|deepspeed)\..+"
    r"|numpy\.(ndarray|dtype|dtypes\.\w+|(_core|core)\.multiarray\.(_reconstruct|scalar))"  # NumPy's random state
    r"|signal\.Signals|pathlib\.(Pure)?(Posix|Windows)?Path|_io\.BytesIO"
)
# Not made Inert: arguments, and members of enumerations, which Python 3.11.2 stores as a call of getattr.
KNOWN = {"argparse.Namespace", GETATTR := "builtins.getattr"}
# Finds the rejected name in torch.load's error message; what is called and has no name comes from getattr.
FORBIDDEN = re.compile(r"GLOBAL (\S+) w|unrecognized function")


class Inert:
    """A placeholder for a pickled object: its fields, without the code of its class."""

    fields: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.fields = state


def member(kind: Any, name: str) -> Any:
    """Return the member of an enumeration, instead of getattr; of an Inert class, an Inert object."""
    return kind[name] if isinstance(kind, EnumType) else Inert()


def safe_load(path: Path) -> dict[str, Any]:
    """Return the dict in a .pt file, with tensors on the CPU, memory-mapped if the file is in the zip format."""
    is_zip = zipfile.is_zipfile(require_file(path))
    try:
        with torch.serialization.safe_globals(harmless(path) if is_zip else []), warnings.catch_warnings():
            # torch warns about old storage classes and pickle protocols.
            warnings.simplefilter("ignore")
            loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=is_zip)
    # A damaged file can raise any exception in the zip reader or the unpickler.
    except Exception as error:
        raise refusal(path, error) from error
    if not isinstance(loaded, dict):
        raise CourseError(f"{path}: holds a {type(loaded).__name__}, expected a dict of tensors")
    return loaded


def harmless(path: Path) -> list[Any]:
    """Return what torch may build beside the tensors of a zip file: arguments, and `Inert` for the rest."""
    try:
        names = set(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    except Exception as error:
        raise refusal(path, error) from error
    if refused := sorted(name for name in names - KNOWN if not HARMLESS.fullmatch(name)):
        raise CourseError(f"{path}: not loaded, it asks for {refused[0]}, which could run code")
    return [Namespace, (member, GETATTR), *((Inert, name) for name in names - KNOWN)]


def refusal(path: Path, error: Exception) -> CourseError:
    """Return the error for a file that torch did not load, without torch's advice to load it unsafely."""
    if isinstance(error, CourseError):
        return error
    if isinstance(error, pickle.UnpicklingError) and (unknown := FORBIDDEN.search(str(error))):
        return CourseError(f"{path}: not loaded, it asks for {unknown[1] or GETATTR}, which could run code")
    return CourseError(f"{path}: not a PyTorch checkpoint, or cut short")
