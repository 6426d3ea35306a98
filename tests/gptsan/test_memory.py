"""The planner's GPTSAN against the model: parameters to the last one, allocations of PyTorch, and what the command says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from course_lib.cli import main
from course_lib.command_line import runs as memory_cli
from course_lib.gptsan import memory
from course_lib.gptsan.config import CLASSES_SECTION, GPTSanRunConfig
from course_lib.gptsan.hf_config import GPTSanConfig
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.run import recompute
from course_lib.gptsan.samples import cross_entropy
from course_lib.settings.config import build, load, to_dict
from course_lib.training import planner
from course_lib.training.freezing import freeze

from tests.allocations import allocated, norms_as_on_a_gpu
from tests.training import ranks

SMALL = {
    "vocab_size": 1500, "max_position_embeddings": 129, "d_model": 64, "d_ff": 512, "d_ext": 256, "d_spout": 16, "num_switch_layers": 2,
    "num_ext_layers": 2, "num_heads": 4, "num_experts": 4,
}  # fmt: skip
SAMPLES, LENGTH = 4, 128
CASES = {"extra": ("base", "none"), "spout": ("base", "onehot"), "all": (None, "uniform")}  # what is trained


def settings(ignore=None, spout="none", shape=SMALL, **sections):
    model = {"shape": shape, "ignore": ignore} | sections.pop("model", {})
    return build(GPTSanRunConfig, sections | {"model": model, "spout": {"mode": spout}})


@pytest.mark.parametrize(("layers", "size"), [(0, 2_778_964_992), (2, 2_805_984_256), (14, 2_960_235_520)])
def test_parameters_of_the_published_model(layers, size):
    assert settings(shape={"num_ext_layers": layers}).sizes().parameters == size


def test_only_a_count_needs_torch():
    code = (
        "import sys; from course_lib.cli import _main; from course_lib.gptsan import config; config.GPTSanRunConfig(); "
        "_main(['memory', '--help']); _main(['memory', '-c', 'nothing.yaml']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: course memory") and done.stdout.endswith("\nFalse\n")


def built(given, autocast):
    shape = GPTSanConfig(
        **to_dict(given.model.shape), train_capacity_factor=4.0, router_jitter_noise=given.loss.router_jitter, separator_token_id=1, pad_token_id=1, eos_token_id=1
    )  # fmt: skip
    model = GPTSanForCausalLM(shape).to({"fp32": torch.float32, "bf16": torch.bfloat16}[given.precision.dtype]).train()
    freeze(model, given.frozen(shape))
    if given.model.recompute == "full":
        recompute(model)
    for parameter in model.parameters():
        if parameter.requires_grad and autocast:
            parameter.data = parameter.data.float()
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    return model


@pytest.mark.parametrize(
    ("recompute", "vocabulary", "case", "dtype"),
    [
        ("none", 100, "extra", "bf16"),
        ("none", 100, "all", "bf16"),
        # in fp32: in bf16, the kernels of some processors allocate buffers of their own
        ("full", 100, "spout", "fp32"),
        ("full", 1500, "extra", "bf16"),
    ],
)
@pytest.mark.parametrize("autocast", [False, True])
def test_activations_and_logits_are_what_pytorch_allocates(monkeypatch, recompute, vocabulary, case, dtype, autocast):
    if dtype == "fp32" and autocast:
        pytest.skip("nothing to cast")
    norms_as_on_a_gpu(monkeypatch)
    ignore, mode = CASES[case]
    given = settings(
        ignore, mode, SMALL | {"vocab_size": vocabulary}, model={"recompute": recompute}, precision={"dtype": dtype},
        data={"num_context": LENGTH}, batch={"micro_size": SAMPLES},
    )  # fmt: skip
    model = built(given, autocast)
    tokens, answers = (torch.randint(0, vocabulary, (SAMPLES, LENGTH)) for _ in range(2))
    spout = None if mode == "none" else torch.rand(SAMPLES, 16)

    def forward():
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            output = model(input_ids=tokens, spout=spout, use_cache=False)
            loss, log_z = cross_entropy(output.logits, answers)
            return loss + 1e-4 * log_z + output.aux_loss

    planned = given.sizes(autocast)
    saved, _, loss = allocated(forward)
    del loss
    _, peak, _ = allocated(lambda: forward().backward())
    # With `again`, nearly all that is saved is small, and the peak is one layer.
    again = recompute == "full" and vocabulary == 100
    logits = planned.logits * 8 / memory.LOGIT_BYTES
    stored = planned.activations + planned.saved_casts
    assert saved == pytest.approx(stored + logits, rel=0.09 if again else 0.02)
    expected = stored + max(planned.logits, planned.layer_backward)
    assert (0.8 if again else 0.98) * expected < peak < (1.1 if again else 1.01) * expected


@pytest.mark.rehearse
def test_states_with_frozen_parameters_are_those_of_deepspeed_to_the_byte(monkeypatch):
    shape = dict(zip(SMALL, (61, 17, 15, 35, 27, 5, 2, 2, 3, 3), strict=True))  # odd: padding shows
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    said = ranks.launch(Path(ranks.__file__).with_name("measure_states.py"), json.dumps(shape))
    measured = [json.loads(line) for line in re.findall(r"^MEASURED (.*)$", said, re.MULTILINE)]
    assert len(measured) == 2 and len(measured[0]) == 2
    for first, second in zip(*measured, strict=True):
        _, stage, dtype, _ = first
        zero = {"stage": stage, "stage3_param_persistence_threshold": 100}
        planned = planner.plan(settings("base", "onehot", shape, precision={"dtype": dtype}, zero=zero), 2).parts
        for part in ("weights", "gradients", "optimizer"):
            assert planned[part] == max(first[-1][part], second[-1][part]), (stage, dtype, part)


def test_the_verb(tmp_path, capsys):
    file = tmp_path / "stage.yaml"
    file.write_text("model: {shape: {num_ext_layers: 14}, ignore: base}\nbatch: {micro_size: 4}\n")
    with pytest.raises(SystemExit, match="0"):
        main(["memory", "-c", str(file)])
    said = capsys.readouterr().out
    assert said.startswith("2,960,235,520 parameters (177,600,512 trained, 2,782,635,008 frozen), 1 GPU")
    assert "16 GB: does not fit; model.recompute=full → " in said


def test_without_checkpoint_and_shape_the_profiles_own_extra_stage_is_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same plan as for the product itself, whose config.json is read where model.checkpoint names it."""
    monkeypatch.setenv("COURSE_PROFILE", "tiny")
    shape = to_dict(load(GPTSanRunConfig, "gptsan-tiny.yaml").model.shape) | {"num_ext_layers": 1}
    GPTSanConfig(**shape).save_pretrained(tmp_path)
    planned = memory_cli.planned(Path("gptsan-tiny-extra.yaml"), None)
    length = CLASSES_SECTION.read().num_context
    product = [f"model.checkpoint={tmp_path}", "model.ignore=base", f"data.num_context={length}"]
    same = memory_cli.planned(Path("gptsan-tiny-extra.yaml"), product)
    assert planner.plan(planned).parts == planner.plan(same).parts
