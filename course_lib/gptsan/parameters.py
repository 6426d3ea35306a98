"""The parameters of a GPTSAN: names, shapes and order of the axes, here and in the original TensorFlow checkpoint.

The importer, the export of a run, the extra stage and the choice of frozen parameters read this table. The memory
planner counts the parameters of the model itself (memory.py). The module does not import torch.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from course_lib.gptsan.shape import EMBEDDINGS, EXTRA_POSITIONS, SPOUT_LAYERS, SPOUT_OUT, GPTSanShape

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

    def hf_names(self, shape: GPTSanShape) -> list[str]:
        """Return the names of the tensors in a model of this shape."""
        parts = {"p": PROJECTIONS, "e": range(shape.num_experts), "": ("",)}[self.split]
        return [self.hf.format(**{self.split or "_": part}) for part in parts]

    def tf_shape(self, shape: GPTSanShape) -> tuple[int, ...]:
        """Return the shape of the variable in the TensorFlow checkpoint."""
        return _sizes(self.tf_axes, shape)

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
# A layer has ATTENTION, the feed-forward part of its kind (SWITCH with experts, EXTRA without), and NORM.
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


def _sizes(axes: str, shape: GPTSanShape) -> tuple[int, ...]:
    """Return the sizes of axes in einops notation, such as `p (n d) h`, in a model of a shape."""
    h, heads = shape.d_model, shape.num_heads
    size = {
        "v": shape.vocab_size, "c": shape.max_position_embeddings, "h": h, "n": heads, "d": h // heads, "p": 3,
        "e": shape.num_experts, "f": shape.d_ff, "g": shape.d_ext, "s": shape.d_spout, "o": shape.num_layers * 2 * h,
        "1": 1,
    }  # fmt: skip
    groups = re.findall(r"\(.+?\)|\S+", axes)
    return tuple(math.prod(size[axis[0]] for axis in group.strip("()").split()) for group in groups)


def variables(shape: GPTSanShape) -> list[Variable]:
    """Return all variables in a model: embeddings, layers, extra positions, head bias, last projection, spout."""
    result = list(MODEL[:2])
    for layer in range(shape.num_layers):
        result += [
            replace(variable, tf=variable.tf.replace("{l}", str(layer)), hf=variable.hf.replace("{l}", str(layer)))
            for variable in (*ATTENTION, *(SWITCH if layer < shape.num_switch_layers else EXTRA), *NORM)
        ]
    if shape.num_ext_layers:
        result.append(Variable("model/ete", "c h", EXTRA_POSITIONS, "c h"))
    return [*result, *MODEL[2:], *(SPOUT if shape.d_spout else ())]


def hf_shapes(shape: GPTSanShape) -> dict[str, tuple[int, ...]]:
    """Return the shape of each Hugging Face tensor in the order of the model, without the tied head."""
    shapes: dict[str, tuple[int, ...]] = {BIAS: (1, shape.vocab_size)}
    for of_experts, group in groupby(variables(shape), lambda variable: variable.split == "e"):
        named = []
        for variable in group:
            sizes = _sizes(variable.hf_axes, shape)
            # The axis that is split is the first one.
            tensor_sizes = sizes[1:] if variable.split else sizes
            named.append([(name, tensor_sizes) for name in variable.hf_names(shape)])
        # The model has all tensors of an expert before those of the next one.
        for several in zip(*named, strict=True) if of_experts else named:
            shapes |= several
    return shapes


def parameter_elements(shape: GPTSanShape) -> dict[str, int]:
    """Return the number of elements of each parameter, in the order of the model. The head's bias is a buffer."""
    return {name: math.prod(sizes) for name, sizes in hf_shapes(shape).items() if name != BIAS}


def infer_shape(shapes: Mapping[str, tuple[int, ...]]) -> GPTSanShape:
    """Infer a shape from a few variables; LookupError or ValueError if one of them is missing or has other axes."""
    (entries, hidden), (experts, _, inner) = shapes["model/wte"], shapes["model/moe0/wi/kernel"]
    switch, extra = (sum(name.endswith(end) for name in shapes) for end in ("/wi/kernel", "/p1/kernel"))
    return GPTSanShape(
        vocab_size=entries,
        max_position_embeddings=shapes["model/wpe"][0],
        d_model=hidden,
        num_heads=shapes["model/att0/qkv/kernel"][2],
        num_experts=experts,
        d_ff=inner,
        d_ext=shapes[f"model/mlp{switch}/p1/kernel"][1] if extra else 4 * hidden,
        d_spout=shapes.get("pasts/out/kernel", (0,))[0],
        num_switch_layers=switch,
        num_ext_layers=extra,
    )


def differences(found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]) -> str:
    """Name the first tensor that is missing, unknown or misshapen, and the number of others; "" if there is none."""
    names = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    if not names:
        return ""
    first, others = names[0], f" and {len(names) - 1} more" if names[1:] else ""
    if first in found and first in wanted:
        return f"wrong shape {first} {found[first]}, expected {wanted[first]}{others}"
    return f"{'unknown' if first in found else 'missing'} {first}{others}"
