"""The control of chapter 5: an extra stage trained for a few steps in this process, with right or wrong classes."""

from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from course_lib.checkpoints import compute
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.gptsan.config import GptsanConfig, SpoutConfig
from course_lib.gptsan.examples import Examples
from course_lib.gptsan.extra_stage import IGNORE
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.samples import Samples, collate
from course_lib.gptsan.task import Gptsan
from course_lib.notebooks.progress import progress
from course_lib.training import quick


def short_run(
    stage: Path, settings: GptsanConfig, examples: Examples, steps: int, size: int = 16, seed: int = 0
) -> GPTSanForCausalLM:
    """Train the extra layers and the spout of an extra stage for some steps of `size` examples; return the model.

    Loss, optimizer and learning-rate schedule are those of a DeepSpeed run. The model is in bf16 if the settings say
    so, otherwise in fp32; while they are trained, weights are in fp32.
    """
    # fp16 would need a loss scale.
    dtype = "bf16" if settings.precision.dtype == "bf16" else "fp32"
    model_settings = replace(settings.model, checkpoint=stage, ignore=stage / IGNORE)
    precision = replace(settings.precision, dtype=dtype)
    task = Gptsan(replace(settings, model=model_settings, precision=precision, spout=SpoutConfig("onehot")))
    model = task.model().to(compute.device(settings.launch.device))
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.float()

    def loss(batch: dict[str, Tensor]) -> Tensor:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=dtype == "bf16"):
            mean: Tensor = task.loss(model, {name: tensor.to(model.device) for name, tensor in batch.items()})
        return mean

    samples = Samples(examples, steps * size, seed, "onehot", model.config.d_spout)

    def batches() -> Iterator[list[Any]]:
        for step in range(steps):
            yield [collate([samples[index] for index in range(step * size, (step + 1) * size)])]
            bar.update()

    with torch.random.fork_rng(), progress(steps, "step", "training") as bar:
        # For the routers' jitter.
        torch.manual_seed(seed)
        with compute.one_thread(model.num_parameters()):
            quick.train(model, loss, batches(), settings.optimizer, steps)
    return model.eval().to(TORCH[dtype])


def shuffled_classes(examples: Examples, seed: int = 0) -> Examples:
    """Return the examples with the class of a random document instead of their own; all else is the same."""
    documents, first, number = np.unique(examples.arrays["document"], return_index=True, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(documents))
    other = copy(examples)
    other.arrays = examples.arrays | {"i": examples.arrays["i"][first][order][number]}
    return other
