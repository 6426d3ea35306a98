"""Mapping between variables in the original TensorFlow checkpoint and tensors in the Hugging Face model.

One table serves both directions. It contains the names, and the order of the axes in einops notation.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from einops import rearrange

from course_lib.gptsan.shape import SPOUT_LAYERS, SPOUT_OUT

# A buffer, not a parameter; it is saved with the model.
BIAS = "final_logits_bias"
# Axis letter → names of the tensors that the axis is split into.
PARTS = {"p": ("q", "k", "v")}


@dataclass(frozen=True)
class Dims:
    """Sizes of a model."""

    vocabulary: int
    contexts: int  # number of positions
    hidden: int
    heads: int
    experts: int
    ffn: int  # inner width of an expert
    ext_ffn: int  # inner width of an extra layer
    spout: int  # width of the spout vector; 0: no spout
    switch_layers: int
    ext_layers: int

    @property
    def layers(self) -> int:
        """Total number of switch layers and extra layers."""
        return self.switch_layers + self.ext_layers

    @property
    def axes(self) -> dict[str, int]:
        """Size of each axis, by its letter in the table. A digit after the letter (`h2`) marks a second such axis."""
        return {
            "v": self.vocabulary,
            "c": self.contexts,
            "h": self.hidden,
            "n": self.heads,
            "d": self.hidden // max(1, self.heads),
            "p": len(PARTS["p"]),
            "e": self.experts,
            "f": self.ffn,
            "g": self.ext_ffn,
            "s": self.spout,
            "o": self.layers * 2 * self.hidden,
            "1": 1,
        }


@dataclass(frozen=True)
class Row:
    """One kind of variable, with its names and axes in both formats.

    `{l}` in a name is the layer number. `{p}` or `{e}` in a Hugging Face name means that the `p` axis (query, key,
    value) or the `e` axis (expert) is split into one tensor per element.
    """

    tf: str  # name in the TensorFlow checkpoint
    tf_axes: str  # axes in the TensorFlow checkpoint, in einops notation
    hf: str  # name in the Hugging Face model
    hf_axes: str  # axes in the Hugging Face model, in einops notation

    @property
    def part(self) -> str:
        """Letter of the axis that is split into several tensors, or an empty string if no axis is split."""
        return next((letter for letter in "pe" if f"{{{letter}}}" in self.hf), "")


MODEL = (
    Row("model/wte", "v h", "model.embed_tokens.weight", "v h"),
    Row("model/wpe", "c h", "model.position_embeddings.weight", "c h"),
    Row("model/wob", "v", BIAS, "1 v"),
    Row("model/dense/kernel", "h h2", "model.last_project.weight", "h2 h"),
    Row("model/dense_1/bias", "h", "model.last_project.bias", "h"),
)
BLOCK = (
    Row("model/att{l}/qkv/kernel", "h p n d", "model.blocks.{l}.self_attn.self_attn.{p}_proj.weight", "p (n d) h"),
    Row("model/att{l}/o/kernel", "n d h", "model.blocks.{l}.self_attn.self_attn.out_proj.weight", "h (n d)"),
    Row("model/an{l}/g", "h", "model.blocks.{l}.self_attn.norm.weight", "h"),
    Row("model/an{l}/b", "h", "model.blocks.{l}.self_attn.norm.bias", "h"),
    Row("model/ln{l}/g", "h", "model.blocks.{l}.feed_forward.norm.weight", "h"),
    Row("model/ln{l}/b", "h", "model.blocks.{l}.feed_forward.norm.bias", "h"),
)
SWITCH = (
    Row(
        "model/moe{l}/switch_gating/kernel", "h e", "model.blocks.{l}.feed_forward.mlp.router.classifier.weight", "e h"
    ),
    Row("model/moe{l}/wi/kernel", "e h f", "model.blocks.{l}.feed_forward.mlp.experts.expert_{e}.wi.weight", "e f h"),
    Row("model/moe{l}/wo/kernel", "e f h", "model.blocks.{l}.feed_forward.mlp.experts.expert_{e}.wo.weight", "e h f"),
    Row("model/moe{l}/softmlp/kernel", "h h2", "model.blocks.{l}.feed_forward.soft_bypass_mlp.weight", "h2 h"),
)
EXTRA = (
    Row("model/mlp{l}/p1/kernel", "h g", "model.blocks.{l}.feed_forward.mlp.wi.weight", "g h"),
    Row("model/mlp{l}/p1/bias", "g", "model.blocks.{l}.feed_forward.mlp.wi.bias", "g"),
    Row("model/mlp{l}/p2/kernel", "g h", "model.blocks.{l}.feed_forward.mlp.wo.weight", "h g"),
    Row("model/mlp{l}/p2/bias", "h", "model.blocks.{l}.feed_forward.mlp.wo.bias", "h"),
)
EXTRA_POSITIONS = Row("model/ete", "c h", "model.extra_position_embeddings.weight", "c h")
SPOUT = (
    *(Row(f"pasts/mlp{i}/kernel", "s s2", f"model.spout.{2 * i}.weight", "s2 s") for i in range(SPOUT_LAYERS)),
    Row("pasts/out/kernel", "s o", SPOUT_OUT, "o s"),
)


@dataclass(frozen=True)
class Variable:
    """One variable in a model with given sizes, with conversion between both formats."""

    row: Row
    dims: Dims
    tf: str  # name in the TensorFlow checkpoint
    hf: tuple[str, ...]  # names in the Hugging Face model; several if an axis is split (q, k, v, or experts)

    @property
    def tf_shape(self) -> tuple[int, ...]:
        """Shape in the TensorFlow checkpoint."""
        return tuple(self.dims.axes[axis[0]] for axis in self.row.tf_axes.split())

    @property
    def hf_shape(self) -> tuple[int, ...]:
        """Shape of each corresponding tensor in the Hugging Face model."""
        shape = tuple(
            self.dims.axes["n"] * self.dims.axes["d"] if axis.startswith("(") else self.dims.axes[axis[0]]
            for axis in re.findall(r"\(.+?\)|\S+", self.row.hf_axes)
        )
        return shape[1:] if self.row.part else shape

    def to_hf(self, value: torch.Tensor) -> list[torch.Tensor]:
        """Convert the TensorFlow variable to the tensors listed in `hf`, which are views of it where possible."""
        turned = rearrange(value, f"{self.row.tf_axes} -> {self.row.hf_axes}")
        return list(turned) if self.row.part else [turned]

    def to_tf(self, values: list[torch.Tensor]) -> torch.Tensor:
        """Convert the tensors listed in `hf` to the TensorFlow variable."""
        joined = torch.stack(values) if self.row.part else values[0]
        heads = {"n": self.dims.heads} if "(" in self.row.hf_axes else {}
        return rearrange(joined, f"{self.row.hf_axes} -> {self.row.tf_axes}", **heads)


def variables(dims: Dims) -> list[Variable]:
    """Return all variables in a model: embeddings, layers in order, head bias and last projection, spout."""

    def of(rows: tuple[Row, ...], layer: int = 0) -> list[Variable]:
        return [Variable(row, dims, row.tf.format(l=layer), _names(row, dims, layer)) for row in rows]

    result = of(MODEL[:2])
    for layer in range(dims.layers):
        if layer == dims.switch_layers:
            result += of((EXTRA_POSITIONS,))
        result += of(BLOCK, layer) + of(SWITCH if layer < dims.switch_layers else EXTRA, layer)
    return result + of(MODEL[2:]) + (of(SPOUT) if dims.spout else [])


def _names(row: Row, dims: Dims, layer: int) -> tuple[str, ...]:
    parts = PARTS.get(row.part) or (range(dims.experts) if row.part else ("",))
    return tuple(row.hf.format(l=layer, **{row.part or "_": part}) for part in parts)


def hf_shapes(dims: Dims) -> dict[str, tuple[int, ...]]:
    """Return the shape of each Hugging Face tensor, except `lm_head.weight` (tied to the embedding)."""
    return {name: variable.hf_shape for variable in variables(dims) for name in variable.hf}


def infer_dims(shapes: Mapping[str, tuple[int, ...]]) -> Dims:
    """Infer the sizes of a model from the shapes of a few variables in a TensorFlow checkpoint.

    Raises KeyError with the name of the variable if a variable is missing or has too few axes.
    """

    def size(name: str, axis: int) -> int:
        if len(shapes[name]) <= axis:
            raise KeyError(name)
        return shapes[name][axis]

    def layers(pattern: str) -> int:
        return sum(bool(re.fullmatch(pattern, name)) for name in shapes)

    switch, hidden = layers(r"model/moe\d+/wi/kernel"), size("model/wte", 1)
    extra = layers(r"model/mlp\d+/p1/kernel")
    return Dims(
        vocabulary=size("model/wte", 0),
        contexts=size("model/wpe", 0),
        hidden=hidden,
        heads=size("model/att0/qkv/kernel", 2),
        experts=size("model/moe0/wi/kernel", 0),
        ffn=size("model/moe0/wi/kernel", 2),
        ext_ffn=size(f"model/mlp{switch}/p1/kernel", 1) if extra else 4 * hidden,
        spout=size("pasts/mlp0/kernel", 0) if layers("pasts/.+") else 0,
        switch_layers=switch,
        ext_layers=extra,
    )


def differences(found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]) -> str:
    """Describe in one line how two sets of names and shapes differ. Return an empty string if they are equal."""

    def listed(names: list[str], show: Callable[[str], str] = str) -> str:
        text = ", ".join(map(show, names[:5]))
        return f"{text} and {len(names) - 5} more" if len(names) > 5 else text

    missing = sorted(wanted.keys() - found.keys())
    unknown = sorted(found.keys() - wanted.keys())
    wrong = sorted(name for name in wanted.keys() & found.keys() if wanted[name] != found[name])
    text = ""
    if wrong:
        shown = listed(wrong, lambda name: f"{name} {found[name]}, expected {wanted[name]}")
        text = f"wrong shape {shown}"
    if unknown:
        shown = listed(unknown)
        text = f"unknown {shown}; {text}" if text else f"unknown {shown}"
    if missing:
        shown = listed(missing)
        text = f"missing {shown}; {text}" if text else f"missing {shown}"
    return text
