"""Translation of a Hugging Face model configuration to a FasterTransformer configuration, and what that cannot do."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.model_folder import end_ids, generation_defaults, require_layers
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.errors import CourseError, UsageError
from course_lib.models import frozen_base
from course_lib.models.families import BY_MODEL_TYPE
from course_lib.models.frozen_base import read_config
from course_lib.serving import layout
from course_lib.serving.layout import LACKS, SUMMED, FtConfig

TANH_GELU = ("gelu_new", "gelu_pytorch_tanh", "gelu_fast")
# Constants in the engine's GPT-NeoX code
ENGINE = {"layer_norm_eps": 1e-5, "rope_theta": 10000.0}
# Settings of a GPT-2 for which the engines support only one value
PLAIN = {"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False}


@dataclass(frozen=True)
class Corrections:
    """Which defects of FasterTransformer's converters to correct; with none, the output is theirs byte for byte."""

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
    """Return a model's FasterTransformer configuration on `ranks` ranks; `name` None is the folder name."""
    hf = read_config(folder)
    require_plain(hf, folder)
    require_layers(folder, hf, len(weight_files.by_name(folder)))
    ends = end_ids(generation_defaults(folder).get("eos_token_id"), hf.eos_token_id)
    end = next((end for end in ends if end < hf.vocab_size), None)
    if end is None:
        raise CourseError(f"{folder / 'config.json'}: eos_token_id is not set; the engine needs an end-of-text token")
    common = {
        "model_name": name or folder.resolve().name,
        "heads": hf.num_attention_heads,
        "head_size": hf.hidden_size // hf.num_attention_heads,
        "layers": hf.num_hidden_layers,
        "vocab_size": hf.vocab_size,
        "start_id": end if hf.bos_token_id is None else hf.bos_token_id,
        "end_id": end,
        "dtype": dtype,
        "ranks": ranks,
    }
    # A configuration may tie the output layer to the embedding although the file has two that differ.
    tied = bool(hf.tie_word_embeddings) and BY_MODEL_TYPE[hf.model_type].head not in dict(frozen_base.weights(folder))
    create = _neox if hf.model_type == "gpt_neox" else _gpt2
    origin = create(hf, common, corrections, tied)
    if len(ends) > 1:
        origin.notes.append(f"the engine ends a text at {end} only; `course ask` sends {ends} as stop words")
    key, activation = next(iter(origin.lacks.items()))
    if activation not in TANH_GELU and not (activation == "relu" and origin.config.activation):
        effect = "small differences" if activation == "gelu" else "different output"
        origin.notes.append(f"{key} is {activation}; the engine computes GELU by tanh: {effect}")
    if refused := layout.uneven(origin.config):
        raise UsageError(f"--tensor-parallel {ranks}: {refused}")
    return origin


def require_plain(hf: Any, folder: Path) -> None:
    """Raise CourseError if a model has a setting that neither FasterTransformer nor CTranslate2 supports."""
    if hf.model_type == "gpt_neox":
        kind, rotated = hf.rope_parameters["rope_type"], rotary(hf)
        if kind != "default" or rotated % 2:
            found = f"rope_type {kind} with {rotated} rotated dimensions of a head"
            raise CourseError(f"{folder}: {found}; allowed: rope_type default, an even number")
        return
    for key, wanted in PLAIN.items():
        if getattr(hf, key) != wanted:
            raise CourseError(f"{folder}: {key} is {getattr(hf, key)}; allowed: {wanted}")


def rotary(hf: Any) -> int:
    """Return the number of rotated dimensions of a head in a GPT-NeoX model."""
    return int(hf.hidden_size // hf.num_attention_heads * hf.rope_parameters.get("partial_rotary_factor", 1.0))


def _neox(hf: Any, common: dict[str, Any], corrections: Corrections, tied: bool) -> Origin:
    rope, parallel, ranks = hf.rope_parameters, bool(hf.use_parallel_residual), common["ranks"]
    lacks = {key: (hf.to_dict() | rope)[key] for key in LACKS["gptneox"]}
    sizes = {"inter_size": hf.intermediate_size, "rotary": rotary(hf)}
    config = FtConfig("gptneox", parallel_residual=parallel, **sizes, **common)
    divided = ranks if parallel or not corrections.bias_scaling else 1
    origin = Origin(config, lacks, tied, divided, not hf.attention_bias)
    both = " and ".join(SUMMED)
    if divided > 1 and not parallel:
        origin.notes.append(f"{both} are divided by {ranks}, as upstream: the engine's output will be wrong")
    elif ranks > 1 and not parallel:
        origin.corrected.append(
            f"{both} are not divided by {ranks}: the engine adds them once (--upstream-bias-scaling)"
        )
    for key, engine in ENGINE.items():
        if lacks[key] != engine:
            origin.notes.append(f"{key} is {lacks[key]:g}; the engine uses {engine:g}: different output")
    return origin


def _gpt2(hf: Any, common: dict[str, Any], corrections: Corrections, tied: bool) -> Origin:
    inner, eps = hf.n_inner or 4 * hf.n_embd, hf.layer_norm_epsilon
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
        origin.corrected.append(f"config.ini says {', '.join(more)} (--upstream-ini)")
    if config.head:
        origin.corrected.append("lm_head is written (--upstream-head)")
    elif not tied:
        origin.notes.append("lm_head is omitted, as upstream: the engine uses the embedding, its output will be wrong")
    return origin
