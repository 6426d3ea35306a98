"""What a rank knows about its card: the vendor's peak by its name, and formats that it has no units for."""

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from course_lib.errors import UsageError
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.training import loop
from course_lib.training.log import peak_flops
from course_lib.training.ranks import Rank


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
    gpu, cpu = torch.device("cuda", 0), torch.device("cpu")
    assert peak_flops(None, gpu) == peak
    assert peak_flops(3.0, gpu) == peak_flops(3.0, cpu) == 3e12
    # launch.device=cpu beside a card
    assert peak_flops(None, cpu) is None


def card(monkeypatch: pytest.MonkeyPatch, name: str, bf16: bool = True) -> None:
    """Lets torch see a card of this name."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _=None: name)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: bf16 or including_emulation)


def test_bf16_is_refused_on_a_card_that_would_emulate_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    card(monkeypatch, "Tesla T4", bf16=False)
    monkeypatch.setattr(loop, "as_before", lambda _: nullcontext())
    monkeypatch.setattr(loop, "joined", lambda _: nullcontext(Rank(0, 1, 1, 0, torch.device("cuda", 0))))
    run = Gpt2(config.build(PretrainConfig, {}, ["precision.dtype=bf16", f"engine.output_dir={tmp_path}/run"]))
    with pytest.raises(UsageError, match=r"precision\.dtype: bf16 is not allowed: Tesla T4 .* allowed: fp16, fp32$"):
        loop.train(run)
    assert not list((tmp_path / "run").iterdir())
