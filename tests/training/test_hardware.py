"""What a rank knows about its card: the vendor's peak by its name, and formats that it has no units for."""

from pathlib import Path

import pytest
import torch
from course_lib.errors import UsageError
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training import trainer
from course_lib.training.log import peak_flops


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA A10G", 70e12),
        ("NVIDIA A10", 125e12),
        ("NVIDIA L4", 121e12),
        # no card of the table: L40 is not L4, T400 is not T4
        ("NVIDIA L40", None),
        ("NVIDIA T400 4GB", None),
    ],
)
def test_the_peak_is_that_of_the_whole_name(monkeypatch: pytest.MonkeyPatch, name: str, peak: float | None):
    card(monkeypatch, name)
    assert peak_flops(None) == peak
    assert peak_flops(3.0) == 3e12


def card(monkeypatch: pytest.MonkeyPatch, name: str, bf16: bool = True) -> None:
    """Lets torch see a card of this name."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: name)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: bf16 or including_emulation)


def test_bf16_is_refused_on_a_card_that_would_emulate_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    card(monkeypatch, "Tesla T4", bf16=False)
    run = config.build(PretrainConfig, {}, ["precision.dtype=bf16", f"engine.output_dir={tmp_path}"])
    with pytest.raises(UsageError, match=r"precision\.dtype: bf16 is not allowed: Tesla T4 .* allowed: fp16, fp32$"):
        trainer.training_arguments(run, run.batch.resolve(1), 1)
