"""Translation of a Hugging Face model configuration to a FasterTransformer configuration.

This module collects the settings that the format cannot store, and rejects models that the engine cannot run.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lib.checkpoints.model_folder import end_id
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.errors import CourseError, UsageError
from course_lib.models.frozen_base import read_config
from course_lib.serving import layout
from course_lib.serving.ft_settings import LACKS
from course_lib.serving.layout import SUMMED, FtConfig

MODEL_NAME = re.compile(r"[^\s;#][^\x00-\x1f;]{0,149}(?<!\s)")
TANH_GELU = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")
# Constants in the engine's GPT-NeoX code
ENGINE_EPS, ENGINE_THETA = 1e-5, 10000.0
# Settings of a GPT-2 for which the engine supports only one value
PLAIN = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}


@dataclass(frozen=True)
class Corrections:
    """Which defects in FasterTransformer's converters to correct.

    If all fields are False, the output is byte-for-byte identical to that of the converters.
    """

    bias_scaling: bool = True  # GPT-NeoX without parallel residual: biases are not divided by N
    ini: bool = True  # GPT-2: layernorm_eps, activation_type and the true inter_size are written
    head: bool = True  # GPT-2: an output layer that is not the embedding is written


@dataclass
class Origin:
    """A source model as FasterTransformer sees it."""

    config: FtConfig  # without tasks
    lacks: dict[str, Any]  # settings that the format cannot store; only this course's reader uses them
    tied: bool  # the output layer is the embedding
    biases_divided_by: int = 1
    zero_biases: bool = False  # the attention has no biases, so zeros are written
    corrected: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def describe(folder: Path, ranks: int, dtype: NumberFormat, name: str | None, corrections: Corrections) -> Origin:
    """Return the FasterTransformer configuration for a Hugging Face model on `ranks` ranks.

    `name` is the model_name in config.ini; None selects the folder name.
    """
    hf = read_config(folder)
    start, end = _ids(folder, hf)
    name = name or folder.resolve().name
    if not MODEL_NAME.fullmatch(name):
        raise UsageError(
            f"--name {name!r}: not allowed in config.ini; allowed: one line of up to 150 characters without ;"
        )
    common = {
        "model_name": name,
        "heads": hf.num_attention_heads,
        "head_size": hf.hidden_size // hf.num_attention_heads,
        "layers": hf.num_hidden_layers,
        "vocab_size": hf.vocab_size,
        "start_id": start,
        "end_id": end,
        "dtype": dtype,
        "ranks": ranks,
    }
    origin = (_neox if hf.model_type == "gpt_neox" else _gpt2)(folder, hf, common, corrections)
    if refused := layout.uneven(origin.config):
        raise UsageError(f"--tensor-parallel {ranks}: {refused}")
    return origin


def _ids(folder: Path, hf: Any) -> tuple[int, int]:
    """Return the start and end ids. If the model has no start id, the end id is used as the start id."""
    end = end_id(folder, hf.eos_token_id)
    if end is None:
        raise CourseError(f"{folder / 'config.json'}: eos_token_id is not set; the engine needs an end-of-text token")
    start = end if hf.bos_token_id is None else hf.bos_token_id
    for key, number in (("bos_token_id", start), ("eos_token_id", end)):
        if not 0 <= number < hf.vocab_size:
            last = hf.vocab_size - 1
            raise CourseError(f"{folder / 'config.json'}: {key} = {number}; allowed: 0 to {last}, the tokens")
    return start, end


def _neox(folder: Path, hf: Any, common: dict[str, Any], corrections: Corrections) -> Origin:
    rope, parallel, ranks = hf.rope_parameters, bool(hf.use_parallel_residual), common["ranks"]
    rotary = int(common["head_size"] * rope.get("partial_rotary_factor", 1.0))
    if rope["rope_type"] != "default" or rotary % 2:
        raise CourseError(
            f"{folder}: rope_type {rope['rope_type']} with {rotary} rotated dimensions of a head; "
            "the engine allows: rope_type default, an even number"
        )
    lacks = {key: (hf.to_dict() | rope)[key] for key in LACKS["gptneox"]}
    config = FtConfig("gptneox", inter_size=hf.intermediate_size, rotary=rotary, parallel_residual=parallel, **common)
    divided = ranks if parallel or not corrections.bias_scaling else 1
    origin = Origin(config, lacks, bool(hf.tie_word_embeddings), divided, not hf.attention_bias)
    both, converter = " and ".join(SUMMED), "as FasterTransformer's converter does"
    if not parallel and ranks > 1:
        if corrections.bias_scaling:
            origin.corrected.append(
                f"{both} are not divided by {ranks}: the engine adds them once "
                f"(--upstream-bias-scaling divides them, {converter})"
            )
        else:
            origin.notes.append(f"{both} are divided by {ranks}, {converter}: the engine's output will be wrong")
    if hf.hidden_act not in TANH_GELU:
        origin.notes.append(_tanh("hidden_act", hf.hidden_act))
    if hf.layer_norm_eps != ENGINE_EPS:
        origin.notes.append(
            f"layer_norm_eps is {hf.layer_norm_eps:g}; the engine uses {ENGINE_EPS:g}: small differences"
        )
    if rope["rope_theta"] != ENGINE_THETA:
        origin.notes.append(f"rope_theta is {rope['rope_theta']:g}; the engine uses {ENGINE_THETA:g}: different output")
    return origin


def _gpt2(folder: Path, hf: Any, common: dict[str, Any], corrections: Corrections) -> Origin:
    for key, wanted in PLAIN.items():
        if getattr(hf, key) != wanted:
            raise CourseError(f"{folder}: {key} is {getattr(hf, key)}: the engine cannot do that; allowed: {wanted}")
    inner, tied, eps = hf.n_inner or 4 * hf.n_embd, bool(hf.tie_word_embeddings), hf.layer_norm_epsilon
    relu = hf.activation_function == "relu"
    config = FtConfig(
        "gpt",
        inter_size=inner,
        positions=hf.n_positions,
        layernorm_eps=eps if corrections.ini else None,
        activation="Relu" if relu and corrections.ini else None,
        head=corrections.head and not tied,
        **common,
    )
    origin = Origin(config, {key: getattr(hf, key) for key in LACKS["gpt"]}, tied)
    if corrections.ini:
        more = [f"layernorm_eps = {eps:g}"] + ["activation_type = Relu"] * relu
        more += [f"inter_size = {inner}"] * (inner != 4 * hf.n_embd)
        origin.corrected.append(
            f"config.ini says {', '.join(more)}; FasterTransformer's converter omits this (--upstream-ini)"
        )
    if config.head:
        origin.corrected.append("lm_head is written; FasterTransformer's converter omits it (--upstream-head)")
    elif not tied:
        origin.notes.append(
            "lm_head is omitted, as by FasterTransformer's converter: the engine uses the embedding instead, "
            "its output will be wrong"
        )
    if hf.activation_function not in (*TANH_GELU, *["relu"] * corrections.ini):
        origin.notes.append(_tanh("activation_function", hf.activation_function))
    return origin


def _tanh(key: str, function: str) -> str:
    """Return the note on an activation function that the engine does not have."""
    effect = "small differences" if function == "gelu" else "different output"
    return f"{key} is {function}; the engine computes GELU by tanh: {effect}"
