"""LoRA by peft, for comparison with a prefix: low-rank updates of the attention projections of a frozen base.

Each weight W [out, in] becomes W + (alpha / rank)·B·A, where B [out, rank] starts at 0. Source: arXiv:2106.09685.
"""

from functools import partial

import torch
from peft import LoraConfig, inject_adapter_in_model

from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.models import frozen_base
from course_lib.prefix.config import PrefixConfig
from course_lib.prefix.model import PrefixModel
from course_lib.prefix.single_process_trainer import Build

# The layer of each family that computes queries, keys and values.
TARGETS = {"gpt_neox": "query_key_value", "gpt2": "c_attn"}


def builder(rank: int) -> Build:
    """Return a function that builds the frozen base of a run with LoRA updates of rank `rank`, which are trained."""
    return partial(_build, rank)


def _build(rank: int, settings: PrefixConfig) -> PrefixModel:
    assert settings.model.base
    base = frozen_base.load(settings.model.base, TORCH[settings.precision.dtype])
    family = base.config.model_type
    torch.manual_seed(settings.engine.seed)
    # GPT-2 stores the weights of its projections as [in, out].
    adapter = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=[TARGETS[family]], fan_in_fan_out=family == "gpt2")
    adapted = inject_adapter_in_model(adapter, base)
    for parameter in filter(lambda parameter: parameter.requires_grad, adapted.parameters()):
        # As the encoder of a prefix: small updates would be lost in 16 bits.
        parameter.data = parameter.data.float()
    return PrefixModel(adapted, None)
