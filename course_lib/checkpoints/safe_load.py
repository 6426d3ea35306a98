"""Safe loader for .pt files from untrusted sources, which runs no code from them.

A .pt file is a pickle, and a pickle can call any function by name. `torch.load(weights_only=True)` only calls functions
that rebuild tensors, but Megatron and DeepSpeed also store training arguments, enums, schedulers and random states. The
arguments are read; every other such object becomes an empty `Inert`.
"""

import pickle
import re
import warnings
import zipfile
from argparse import Namespace
from pathlib import Path
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
# Finds the rejected name in torch.load's error message.
FORBIDDEN = re.compile(r"GLOBAL (\S+) w")


class Inert:
    """A placeholder for a pickled object that is not needed; it discards the object's state."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, _: Any) -> None: ...


def safe_load(path: Path) -> dict[str, Any]:
    """Return the dict in a .pt file, with tensors on the CPU.

    Tensors are memory-mapped if the file is in the zip format (PyTorch 1.6 and later), so do not rewrite the file while
    they are in use. Raises CourseError if the file is empty, truncated, not a PyTorch file or not a dict, or if it
    names a class or function that is not allowed.
    """
    require_file(path)
    inert: set[str] = set()
    while True:
        try:
            loaded = _load(path, inert)
        except pickle.UnpicklingError as error:
            unknown = FORBIDDEN.search(str(error))
            if not unknown or not HARMLESS.fullmatch(unknown[1]) or unknown[1] in inert:
                raise refusal(path, error) from error
            inert.add(unknown[1])
        # A damaged file can raise any exception in the zip reader or the unpickler.
        except Exception as error:
            raise CourseError(f"{path}: not a PyTorch checkpoint, or cut short ({type(error).__name__})") from error
        else:
            if not isinstance(loaded, dict):
                raise CourseError(f"{path}: holds a {type(loaded).__name__}, expected a dict of tensors")
            return loaded


def refusal(path: Path, error: pickle.UnpicklingError) -> CourseError:
    """Return the error for a file that torch refused to unpickle, without torch's advice to load it unsafely."""
    unknown = FORBIDDEN.search(str(error))
    problem = (
        f"not loaded, it asks for {unknown[1]}, which could run code"
        if unknown
        else "not a PyTorch checkpoint, or cut short"
    )
    return CourseError(f"{path}: {problem}")


def _load(path: Path, inert: set[str]) -> Any:
    """Load a .pt file, with Inert in place of each class in `inert`."""
    allowed: list[Any] = [Namespace, *((Inert, name) for name in inert)]
    with torch.serialization.safe_globals(allowed), warnings.catch_warnings():
        # torch warns about old storage classes and pickle protocols.
        warnings.simplefilter("ignore")
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
