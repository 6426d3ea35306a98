"""The parameters of a GPTSAN: names, shapes and order of the axes, here and in the original TensorFlow checkpoint.

The importer and the memory planner read this table. The module does not import torch.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from course_lib.gptsan.shape import EMBEDDINGS, EXTRA_POSITIONS, SPOUT_LAYERS, SPOUT_OUT, GPTSANShape

if TYPE_CHECKING:
    import torch

# A buffer, not a parameter; it is saved with the model.
BIAS = "final_logits_bias"
# Query, key, value: in this order along the axis `p`.
PROJECTIONS = ("q", "k", "v")


@dataclass(frozen=True)
class Variable:
    """A variable of the original and the tensors that it becomes here. `{l}` in a name is the layer number.

    `{p}` or `{e}` in a Hugging Face name means that the `p` axis (query, key, value) or the `e` axis (expert) is split
    into one tensor per element. Axes are in einops notation; a digit (`h2`) marks a second axis of the same size.
    """

    tf: str
    tf_axes: str
    hf: str
    hf_axes: str

    @property
    def split(self) -> str:
        """Letter of the axis that is split into several tensors, or an empty string if no axis is split."""
        return next((letter for letter in "pe" if f"{{{letter}}}" in self.hf), "")

    def hf_names(self, shape: Any) -> list[str]:
        """Return the names of the tensors in a model of this shape."""
        parts = {"p": PROJECTIONS, "e": range(shape.num_experts), "": ("",)}[self.split]
        return [self.hf.format(**{self.split or "_": part}) for part in parts]

    def tf_shape(self, shape: Any) -> tuple[int, ...]:
        """Return the shape of the variable in the TensorFlow checkpoint."""
        return _sizes(self.tf_axes, shape)

    def hf_shape(self, shape: Any) -> tuple[int, ...]:
        """Return the shape of each of the tensors."""
        return _sizes(self.hf_axes, shape)[bool(self.split) :]

    def to_hf(self, value: "torch.Tensor") -> "list[torch.Tensor]":
        """Convert the TensorFlow variable to the tensors, which are views of it where possible."""
        from einops import rearrange

        turned = rearrange(value, f"{self.tf_axes} -> {self.hf_axes}")
        return list(turned) if self.split else [turned]


MODEL = (
    Variable("model/wte", "v h", EMBEDDINGS[0], "v h"),
    Variable("model/wpe", "c h", EMBEDDINGS[1], "c h"),
    Variable("model/wob", "v", BIAS, "1 v"),
    Variable("model/dense/kernel", "h h2", "model.last_project.weight", "h2 h"),
    Variable("model/dense_1/bias", "h", "model.last_project.bias", "h"),
)
_ATTENTION, _FEED_FORWARD = "model.blocks.{l}.self_attn", "model.blocks.{l}.feed_forward"
ATTENTION = (
    Variable("model/att{l}/qkv/kernel", "h p n d", f"{_ATTENTION}.self_attn.{{p}}_proj.weight", "p (n d) h"),
    Variable("model/att{l}/o/kernel", "n d h", f"{_ATTENTION}.self_attn.out_proj.weight", "h (n d)"),
    Variable("model/an{l}/g", "h", f"{_ATTENTION}.norm.weight", "h"),
    Variable("model/an{l}/b", "h", f"{_ATTENTION}.norm.bias", "h"),
)
SWITCH = (
    Variable("model/moe{l}/switch_gating/kernel", "h e", f"{_FEED_FORWARD}.mlp.router.classifier.weight", "e h"),
    Variable("model/moe{l}/wi/kernel", "e h f", f"{_FEED_FORWARD}.mlp.experts.expert_{{e}}.wi.weight", "e f h"),
    Variable("model/moe{l}/wo/kernel", "e f h", f"{_FEED_FORWARD}.mlp.experts.expert_{{e}}.wo.weight", "e h f"),
    Variable("model/moe{l}/softmlp/kernel", "h h2", f"{_FEED_FORWARD}.soft_bypass_mlp.weight", "h2 h"),
)
EXTRA = (
    Variable("model/mlp{l}/p1/kernel", "h g", f"{_FEED_FORWARD}.mlp.wi.weight", "g h"),
    Variable("model/mlp{l}/p1/bias", "g", f"{_FEED_FORWARD}.mlp.wi.bias", "g"),
    Variable("model/mlp{l}/p2/kernel", "g h", f"{_FEED_FORWARD}.mlp.wo.weight", "h g"),
    Variable("model/mlp{l}/p2/bias", "h", f"{_FEED_FORWARD}.mlp.wo.bias", "h"),
)
NORM = (
    Variable("model/ln{l}/g", "h", f"{_FEED_FORWARD}.norm.weight", "h"),
    Variable("model/ln{l}/b", "h", f"{_FEED_FORWARD}.norm.bias", "h"),
)
SPOUT = (
    *(Variable(f"pasts/mlp{i}/kernel", "s s2", f"model.spout.{2 * i}.weight", "s2 s") for i in range(SPOUT_LAYERS)),
    Variable("pasts/out/kernel", "s o", SPOUT_OUT, "o s"),
)


def _sizes(axes: str, shape: Any) -> tuple[int, ...]:
    """Return the sizes of axes in einops notation, such as `p (n d) h`, in a model of a shape."""
    h = shape.d_model
    size = {
        "v": shape.vocab_size,
        "c": shape.max_position_embeddings,
        "h": h,
        "n": shape.num_heads,
        "d": h // shape.num_heads,
        "p": len(PROJECTIONS),
        "e": shape.num_experts,
        "f": shape.d_ff,
        "g": shape.d_ext,
        "s": shape.d_spout,
        "o": shape.num_layers * 2 * h,
        "1": 1,
    }
    groups = re.findall(r"\(.+?\)|\S+", axes)
    return tuple(math.prod(size[axis[0]] for axis in group.strip("()").split()) for group in groups)


def variables(shape: Any) -> list[Variable]:
    """Return all variables in a model: embeddings, layers, extra positions, head bias, last projection, spout.

    `shape` is a GPTSANShape or a GPTSanConfig, here and in the other functions.
    """
    result = list(MODEL[:2])
    for layer in range(shape.num_layers):
        result += [
            replace(variable, tf=variable.tf.replace("{l}", str(layer)), hf=variable.hf.replace("{l}", str(layer)))
            for variable in (*ATTENTION, *(SWITCH if layer < shape.num_switch_layers else EXTRA), *NORM)
        ]
    if shape.num_ext_layers:
        result.append(Variable("model/ete", "c h", EXTRA_POSITIONS, "c h"))
    return [*result, *MODEL[2:], *(SPOUT if shape.d_spout else ())]


def hf_shapes(shape: Any) -> dict[str, tuple[int, ...]]:
    """Return the shape of each Hugging Face tensor in the order of the model, without the tied head."""
    shapes: dict[str, tuple[int, ...]] = {}
    for of_experts, group in groupby(variables(shape), lambda variable: variable.split == "e"):
        named = [[(name, variable.hf_shape(shape)) for name in variable.hf_names(shape)] for variable in group]
        # The model has all tensors of an expert before those of the next one.
        for several in zip(*named, strict=True) if of_experts else named:
            shapes |= several
    return shapes


def parameters(shape: Any) -> dict[str, int]:
    """Return the number of elements of each parameter, in the order of the model. The head's bias is a buffer."""
    return {name: math.prod(sizes) for name, sizes in hf_shapes(shape).items() if name != BIAS}


def infer_shape(shapes: Mapping[str, tuple[int, ...]]) -> GPTSANShape:
    """Infer the shape of a model from the shapes of a few variables in a TensorFlow checkpoint."""

    def size(name: str, axis: int) -> int:
        if len(shapes[name]) <= axis:
            raise KeyError(name)
        return shapes[name][axis]

    def layers(pattern: str) -> int:
        return sum(bool(re.fullmatch(pattern, name)) for name in shapes)

    switch, hidden = layers(r"model/moe\d+/wi/kernel"), size("model/wte", 1)
    extra = layers(r"model/mlp\d+/p1/kernel")
    return GPTSANShape(
        vocab_size=size("model/wte", 0),
        max_position_embeddings=size("model/wpe", 0),
        d_model=hidden,
        num_heads=size("model/att0/qkv/kernel", 2),
        num_experts=size("model/moe0/wi/kernel", 0),
        d_ff=size("model/moe0/wi/kernel", 2),
        d_ext=size(f"model/mlp{switch}/p1/kernel", 1) if extra else 4 * hidden,
        d_spout=size("pasts/mlp0/kernel", 0) if layers("pasts/.+") else 0,
        num_switch_layers=switch,
        num_ext_layers=extra,
    )


def differences(found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]) -> str:
    """Describe in one line how two sets of names and shapes differ. Return an empty string if they are equal."""
    names = {
        "missing": wanted.keys() - found.keys(),
        "unknown": found.keys() - wanted.keys(),
        "wrong shape": {name for name in wanted.keys() & found.keys() if wanted[name] != found[name]},
    }
    parts = []
    for problem, affected in names.items():
        if affected:
            first = min(affected)
            shapes = f" {found[first]}, expected {wanted[first]}" if problem == "wrong shape" else ""
            others = f" and {len(affected) - 1} more" if len(affected) > 1 else ""
            parts.append(f"{problem} {first}{shapes}{others}")
    return "; ".join(parts)
