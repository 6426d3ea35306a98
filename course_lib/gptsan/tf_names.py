"""The weights of GPTSAN under both their names: a variable of the original's TensorFlow checkpoint ⇄ tensors of the Hugging Face model.

One table says everything: names, shapes and the rearrangement between them, in einops' notation, so that it reads in both directions.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from einops import rearrange

SPOUT_LAYERS = 8  # tanh layers before the spout's output projection
SPOUT_OUT = f"model.spout.{2 * SPOUT_LAYERS}.weight"  # its shape depends on the depth of the model
BIAS = "final_logits_bias"  # a buffer: saved with the model, no parameter
PARTS = {"p": ("q", "k", "v")}


@dataclass(frozen=True)
class Dims:
    """Sizes of a model."""

    vocabulary: int
    contexts: int  # positions
    hidden: int
    heads: int
    experts: int
    ffn: int  # inner width of an expert
    ext_ffn: int  # inner width of an extra layer
    spout: int  # width of the spout's vector; 0: none
    switch_layers: int
    ext_layers: int

    @property
    def layers(self) -> int:
        """Switch layers and extra layers."""
        return self.switch_layers + self.ext_layers

    @property
    def axes(self) -> dict[str, int]:
        """Size of every axis that the table names by a letter; a digit behind it (`h2`) tells two axes of one size apart."""
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
    """One kind of variable. `{l}` in its names is the layer; `{p}` or `{e}` stands for the tensors that its first axis `p` or `e` becomes."""

    tf: str
    tf_axes: str
    hf: str
    hf_axes: str

    @property
    def part(self) -> str:
        """The letter of the axis that is split into several tensors, or nothing."""
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
    """One variable of one model."""

    row: Row
    dims: Dims
    tf: str
    hf: tuple[str, ...]  # several where an axis is split: q, k, v, or one for each expert

    @property
    def tf_shape(self) -> tuple[int, ...]:
        """Shape in the TensorFlow checkpoint."""
        return tuple(self.dims.axes[axis[0]] for axis in self.row.tf_axes.split())

    @property
    def hf_shape(self) -> tuple[int, ...]:
        """Shape of each tensor of the Hugging Face model."""
        shape = tuple(
            self.dims.axes["n"] * self.dims.axes["d"] if axis.startswith("(") else self.dims.axes[axis[0]]
            for axis in re.findall(r"\(.+?\)|\S+", self.row.hf_axes)
        )
        return shape[1:] if self.row.part else shape

    def to_hf(self, value: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of `hf`, as views of the variable."""
        turned = rearrange(value, f"{self.row.tf_axes} -> {self.row.hf_axes}")
        return list(turned) if self.row.part else [turned]

    def to_tf(self, values: list[torch.Tensor]) -> torch.Tensor:
        """The variable, from the tensors of `hf`."""
        joined = torch.stack(values) if self.row.part else values[0]
        heads = {"n": self.dims.heads} if "(" in self.row.hf_axes else {}
        return rearrange(joined, f"{self.row.hf_axes} -> {self.row.tf_axes}", **heads)


def variables(dims: Dims) -> list[Variable]:
    """Every variable of a model, in the order of the forward pass."""

    def of(rows: tuple[Row, ...], layer: int = 0) -> list[Variable]:
        return [Variable(row, dims, row.tf.format(l=layer), _names(row, dims, layer)) for row in rows]

    found = of(MODEL[:2])
    for layer in range(dims.layers):
        if layer == dims.switch_layers:
            found += of((EXTRA_POSITIONS,))
        found += of(BLOCK, layer) + of(SWITCH if layer < dims.switch_layers else EXTRA, layer)
    return found + of(MODEL[2:]) + (of(SPOUT) if dims.spout else [])


def _names(row: Row, dims: Dims, layer: int) -> tuple[str, ...]:
    parts = PARTS.get(row.part) or (range(dims.experts) if row.part else ("",))
    return tuple(row.hf.format(l=layer, **{row.part or "_": part}) for part in parts)


def hf_shapes(dims: Dims) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the Hugging Face model, `lm_head.weight` apart, which is the embedding."""
    return {name: variable.hf_shape for variable in variables(dims) for name in variable.hf}


def infer_dims(shapes: Mapping[str, tuple[int, ...]]) -> Dims:
    """The sizes that a TensorFlow checkpoint's shapes speak of; whether all shapes agree is not asked. Raises KeyError naming a variable that is not there."""

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
    """What differs between two sets of names and shapes, in one line; empty if nothing does."""

    def listed(kind: str, names: list[str], show: Callable[[str], str]) -> str:
        return f"{kind} {', '.join(map(show, names[:5]))}{f' and {len(names) - 5} more' if len(names) > 5 else ''}"

    missing = sorted(wanted.keys() - found.keys())
    unknown = sorted(found.keys() - wanted.keys())
    wrong = sorted(name for name in wanted.keys() & found.keys() if wanted[name] != found[name])
    parts = [listed("missing", missing, str)] if missing else []
    parts += [listed("unknown", unknown, str)] if unknown else []
    parts += [listed("wrong shape", wrong, lambda n: f"{n} {found[n]}, expected {wanted[n]}")] if wrong else []
    return "; ".join(parts)
