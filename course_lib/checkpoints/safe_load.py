"""Reads the .pt files of strangers without running anything in them.

A .pt file is a pickle, and a pickle can name any function to call. `torch.load(weights_only=True)` calls only what rebuilds tensors.
Megatron and DeepSpeed also store their arguments, enums, schedulers and random states: the arguments are read, the rest becomes `Inert`.
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

HARMLESS = re.compile(  # names that become Inert: nothing of these packages is imported or called
    r"(megatron|deepspeed)\..+"
    r"|numpy\.(ndarray|dtype|dtypes\.\w+|(_core|core)\.multiarray\.(_reconstruct|scalar))"  # NumPy's random state
    r"|signal\.Signals|pathlib\.(Pure)?(Posix|Windows)?Path|_io\.BytesIO"
)
FORBIDDEN = re.compile(r"GLOBAL (\S+) w")  # how torch.load names what it does not know


class Inert:
    """What is left of an object that a conversion does not need: no state, no behaviour."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, _: Any) -> None: ...


def safe_load(path: Path) -> dict[str, Any]:
    """The dict in a .pt file, tensors on the CPU and memory-mapped where the format allows it (PyTorch 1.6 and later).

    A mapped tensor is the file itself: the file must not be rewritten while it is in use. Raises CourseError if the file is empty, cut short, no PyTorch file or not a dict, or names a class or function that is not allowed.
    """
    require_file(path)
    inert: set[str] = set()
    while True:
        try:
            loaded = _load(path, inert)
        except pickle.UnpicklingError as error:
            unknown = FORBIDDEN.search(str(error))
            if not unknown:
                raise CourseError(f"{path}: not a PyTorch checkpoint, or cut short") from error
            if not HARMLESS.fullmatch(unknown[1]) or unknown[1] in inert:
                raise CourseError(f"{path}: not loaded, it asks for {unknown[1]}, which could run code") from error
            inert.add(unknown[1])
        except Exception as error:  # a damaged file can end in any error of the zip reader or of the unpickler
            raise CourseError(f"{path}: not a PyTorch checkpoint, or cut short ({type(error).__name__})") from error
        else:
            if not isinstance(loaded, dict):
                raise CourseError(f"{path}: holds a {type(loaded).__name__}, expected a dict of tensors")
            return loaded


def _load(path: Path, inert: set[str]) -> Any:
    allowed: list[Any] = [Namespace, *((Inert, name) for name in inert)]
    with torch.serialization.safe_globals(allowed), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old storages, other pickle protocols
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
