import enum
import os
import random
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from course_lib.checkpoints.safe_load import Inert, safe_load
from course_lib.errors import CourseError


class Calls:
    """Pickled as a call of `function`, which loading without care makes."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.fixture
def megatron(monkeypatch):
    """A stand-in of Megatron's package with an enum and an object, gone again before loading."""
    module: Any = ModuleType("megatron.core.enums")
    module.ModelType = enum.Enum("ModelType", ["encoder_or_decoder"], module=module.__name__)  # type: ignore[misc]
    module.Scheduler = type("Scheduler", (), {"__module__": module.__name__})
    for name in ("megatron", "megatron.core", module.__name__):
        monkeypatch.setitem(sys.modules, name, module)
    return module


def test_what_megatron_stores_beside_weights(tmp_path, megatron, monkeypatch):
    scheduler = megatron.Scheduler()
    scheduler.step, scheduler.kind = 3, megatron.ModelType.encoder_or_decoder
    content = {
        "args": Namespace(num_layers=3, params_dtype=torch.bfloat16, model_type=scheduler.kind, seen={1}, save=Path("x")),
        "lr_scheduler": scheduler,
        "rng_state": [{"random_rng_state": random.getstate(), "np_rng_state": np.random.get_state(), "np": np.float64(1)}],
        "weight": torch.arange(6.0).reshape(2, 3),
        "shape": torch.Size([2, 3]),
    }  # fmt: skip
    torch.save(content, tmp_path / "a.pt")
    for name in ("megatron", "megatron.core", "megatron.core.enums"):
        monkeypatch.delitem(sys.modules, name)
    loaded = safe_load(tmp_path / "a.pt")
    assert torch.equal(loaded["weight"], content["weight"])
    assert loaded["args"].num_layers == 3 and loaded["args"].params_dtype == torch.bfloat16
    assert isinstance(loaded["lr_scheduler"], Inert) and loaded["lr_scheduler"].fields["step"] == 3
    assert isinstance(loaded["rng_state"][0]["np_rng_state"][1], Inert)
    assert "megatron" not in sys.modules


def test_a_member_of_an_enumeration_as_python_3_11_2_stores_it(tmp_path, megatron, monkeypatch):
    stored = Calls(getattr, megatron.ModelType, "encoder_or_decoder")
    torch.save({"args": Namespace(model_type=stored, num_layers=3)}, tmp_path / "a.pt")
    monkeypatch.delitem(sys.modules, megatron.__name__)
    assert safe_load(tmp_path / "a.pt")["args"].num_layers == 3


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("function", "arguments", "named"),
    [
        (Path.touch, (Path("place"),), "getattr|pathlib.Path.touch"),
        (os.system, ("touch place",), "posix.system"),
        (subprocess.run, (["touch", "place"],), "commands.run"),  # the name that pickle's protocol 2 writes
    ],
)
def test_a_payload_is_refused_and_not_run(tmp_path, monkeypatch, function, arguments, named, zipped):
    monkeypatch.chdir(tmp_path)
    torch.save({"args": Calls(function, *arguments)}, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    with pytest.raises(
        CourseError, match=rf"a\.pt: not loaded, it asks for (builtins.)?({named}), which could run code"
    ):
        safe_load(tmp_path / "a.pt")
    assert not list(tmp_path.glob("place*"))


@pytest.mark.parametrize("zipped", [True, False])
def test_cut_short_anywhere(tmp_path, zipped):
    torch.save({"weight": torch.ones(50, 50)}, tmp_path / "a.pt", _use_new_zipfile_serialization=zipped)
    content = (tmp_path / "a.pt").read_bytes()
    for length in (0, 2, len(content) // 2, len(content) - 1):
        (tmp_path / "a.pt").write_bytes(content[:length])
        with pytest.raises(CourseError, match=r"a\.pt: .*(is empty|not a PyTorch checkpoint)"):
            safe_load(tmp_path / "a.pt")
