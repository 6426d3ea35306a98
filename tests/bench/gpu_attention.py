"""The card's rates, and the attention kernels that its PyTorch chooses for the course's models, seen in the profiler.

Models have one layer of the real width and run forward and backward as in training: GPT-2 without a mask, GPT-NeoX
behind a prefix and GPTSAN behind a bidirectional part with one. `flash` in a kernel's name is FlashAttention, `cudnn`
that of cuDNN, `fmha` or `efficient` the memory-efficient kernel, which takes a mask; `_math` is none of them and stores
all scores.
"""

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter

import torch
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.generation.prefix_cache import Shape
from course_lib.gptsan.generate import token_types
from course_lib.gptsan.hf_config import GPTSanConfig
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.models.causal import build_model
from course_lib.prefix.encoder import PrefixEncoder
from course_lib.prefix.model import PrefixModel
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training.freezing import freeze
from torch import Tensor
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from tests.bench.gpu_common import Bench, Part, Values, matrix_rate, neox_shape, synchronize
from tests.bench.gpu_gptsan import TINY

# parts of the names of attention kernels on the card
OPERATORS = "aten::_scaled_dot_product_"
MARKS = ("flash", "fmha", "cudnn", "efficient", "attention", "sdpa")


def run(bench: Bench) -> Values:
    """Rates, and for each model and format the kernels and their time."""
    device = bench.device
    rates = {dtype: matrix_rate(device, dtype) for dtype in ("bf16", "fp16")}
    # (name, forward and backward pass)
    models = {
        "GPT-2 124M": _gpt2("gpt2-tiny.yaml" if bench.tiny else "gpt2-125m.yaml", bench),
        "GPT-2 XL": _gpt2("gpt2-tiny.yaml" if bench.tiny else "gpt2-xl.yaml", bench),
        "prefix of GPT-NeoX 3.6B": _prefix(bench),
        "GPTSAN": _gptsan(bench),
    }
    rows = [
        {"model": name, "dtype": dtype} | _kernels(device, build(dtype))
        for name, build in models.items()
        for dtype in ("bf16", "fp16")
    ]
    return {"kind": "kernels", "matrix_rates": rates, "copy": _copy_rate(device), "rows": rows}


PARTS = [Part("kernels", 50, run)]
Step = Callable[[], Tensor]
Build = Callable[[str], Step]


def _gpt2(file: str, bench: Bench) -> Build:
    shape = config.load(PretrainConfig, file).model
    shape = replace(shape, num_layers=1, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    rows, length = (1, 64) if bench.tiny else (8, 1024)

    def build(dtype: str) -> Step:
        model = build_model(shape).to(bench.device, TORCH[dtype])  # type: ignore[index]
        ids = torch.randint(shape.vocab_size, (rows, length), device=bench.device)
        return lambda: model(input_ids=ids, use_cache=False).logits

    return build


def _prefix(bench: Bench) -> Build:
    shape = replace(neox_shape(bench), num_layers=1)
    rows, length = (1, 16) if bench.tiny else (16, 64)

    def build(dtype: str) -> Step:
        base = build_model(shape).requires_grad_(False)
        # as frozen_base.load builds it, with the mask of a cache
        base.config._attn_implementation = "sdpa"
        model = PrefixModel(base, PrefixEncoder(20, Shape.of(base.config).width, 64, 64))
        model = model.to(bench.device, TORCH[dtype])  # type: ignore[index]
        ids = torch.randint(shape.vocab_size, (rows, length), device=bench.device)
        return lambda: model(ids)

    return build


def _gptsan(bench: Bench) -> Build:
    sizes = {"num_switch_layers": 1, "num_ext_layers": 1}
    shape = GPTSanConfig(**(TINY | sizes if bench.tiny else sizes))
    rows, length = (1, 64) if bench.tiny else (4, 1024)

    def build(dtype: str) -> Step:
        model = GPTSanForCausalLM(shape).to(bench.device, TORCH[dtype]).train()  # type: ignore[index]
        freeze(model, set())
        ids = torch.randint(shape.vocab_size, (rows, length), device=bench.device)
        types = token_types(torch.full((rows,), 16, device=bench.device), length, spout=True)
        spout = functional.one_hot(torch.zeros(rows, dtype=torch.long, device=bench.device), shape.d_spout)
        return lambda: model(ids, token_type_ids=types, spout=spout.to(model.dtype), use_cache=False).logits

    return build


def _kernels(device: str, step: Step) -> Values:
    """PyTorch's attention operators in a step, the card's kernels behind them, and the time of the step [s]."""

    def once() -> float:
        started = perf_counter()
        step().float().logsumexp(-1).mean().backward()
        synchronize(device)
        return perf_counter() - started

    once()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]
    with profile(activities=activities) as trace:
        once()
    events = trace.key_averages()
    on_card = [event.key for event in events if event.device_type.name == "CUDA"]
    return {
        "operators": sorted(event.key for event in events if event.key.startswith(OPERATORS)),
        "kernels": sorted(name for name in on_card if any(word in name.lower() for word in MARKS)),
        "seconds": once(),
    }


def _copy_rate(device: str) -> float:
    """A copy within the card's memory [bytes/s], counting bytes read and bytes written."""
    source = torch.randn(1 << (16 if device == "cpu" else 30), device=device)
    target, times = torch.empty_like(source), []
    for _ in range(10):
        started = perf_counter()
        target.copy_(source)
        synchronize(device)
        times.append(perf_counter() - started)
    return 2 * source.numel() * source.element_size() / sorted(times)[5]
