"""Memory and floating-point operations of a GPTSAN training run, for the memory planner of chapter 4.

Parameter counts are exact. Activations and logits are formulas. tests/gptsan/test_memory.py compares both with PyTorch.
A layer counts as trained if any of its parameters is trained. The formulas give an upper bound: they assume that no
expert overflows and that every position has a target.
"""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, TypeAlias

from course_lib import config
from course_lib.errors import CourseError
from course_lib.files import read_json
from course_lib.gptsan.freeze import decays, frozen_names
from course_lib.gptsan.shape import ShapeConfig
from course_lib.models.memory import BYTES, Sizes

# A GptsanConfig; its module imports this module, so it cannot be imported here.
Settings: TypeAlias = Any

MODEL_TYPE = "gptsan-japanese"
EMBEDDINGS = ("model.embed_tokens.weight", "model.position_embeddings.weight")
EXTRA_POSITIONS = "model.extra_position_embeddings.weight"
SPOUT_LAYERS = 8
# Bytes per logit in fp32: the logits (kept for log Z), their log-softmax, and three tensors of the same size when the
# backward pass begins.
LOGIT_BYTES = 20


def shape_of(settings: Settings) -> ShapeConfig:
    """The shape of the model: that of model.checkpoint if it is set, else model.shape.

    Raises:
        CourseError: the checkpoint's folder holds no GPTSAN.
    """
    folder = settings.model.checkpoint
    if folder is None:
        shape: ShapeConfig = settings.model.shape
        return shape
    path = folder / "config.json"
    content = read_json(path)
    if content.get("model_type") != MODEL_TYPE:
        raise CourseError(f"{path}: no GPTSAN: its model_type is not {MODEL_TYPE}")
    known = {name: content[name] for name in asdict(ShapeConfig()) if name in content}
    return config.build(ShapeConfig, known, where=str(path))


def tensors(shape: ShapeConfig) -> Iterator[tuple[str, int]]:
    """Yields (name, number of elements) of every parameter, in the order of GPTSanForCausalLM.

    The head has no parameters of its own: its weight is tied to the embedding and its bias is a buffer.
    """
    h, layers = shape.d_model, shape.num_switch_layers + shape.num_ext_layers
    yield from zip(EMBEDDINGS, (shape.vocab_size * h, shape.max_position_embeddings * h), strict=True)
    for layer in range(layers):
        attention, feed = f"model.blocks.{layer}.self_attn", f"model.blocks.{layer}.feed_forward"
        yield from ((f"{attention}.self_attn.{part}_proj.weight", h * h) for part in ("q", "k", "v", "out"))
        yield from _with_bias(f"{attention}.norm", h, h)
        if layer < shape.num_switch_layers:
            yield f"{feed}.mlp.router.classifier.weight", shape.num_experts * h
            experts = [f"{feed}.mlp.experts.expert_{expert}" for expert in range(shape.num_experts)]
            yield from ((f"{expert}.{part}.weight", h * shape.d_ff) for expert in experts for part in ("wi", "wo"))
            yield f"{feed}.soft_bypass_mlp.weight", h * h
        else:
            yield from _with_bias(f"{feed}.mlp.wi", h * shape.d_ext, shape.d_ext)
            yield from _with_bias(f"{feed}.mlp.wo", h * shape.d_ext, h)
        yield from _with_bias(f"{feed}.norm", h, h)
    if shape.num_ext_layers:
        yield EXTRA_POSITIONS, shape.max_position_embeddings * h
    yield from _with_bias("model.last_project", h * h, h)
    if shape.d_spout:
        yield from ((f"model.spout.{2 * index}.weight", shape.d_spout**2) for index in range(SPOUT_LAYERS))
        yield f"model.spout.{2 * SPOUT_LAYERS}.weight", shape.d_spout * layers * 2 * h


def _with_bias(name: str, weight: int, bias: int) -> Iterator[tuple[str, int]]:
    yield from ((f"{name}.weight", weight), (f"{name}.bias", bias))


def gptsan_sizes(settings: Settings) -> Sizes:
    """Parameters, activations, logits and floating-point operations of a run, for the memory planner."""
    shape, length = shape_of(settings), _length(settings)
    named = dict(tensors(shape))
    frozen = frozen_names(settings.model.ignore, settings.spout.mode, shape, list(named))
    run = _Run(settings, shape, length, named.keys() - frozen)
    return Sizes(
        trained=tuple((size, decays(name)) for name, size in named.items() if name not in frozen),
        frozen=tuple(size for name, size in named.items() if name in frozen),
        activations=run.activations(),
        logits=LOGIT_BYTES * run.tokens * shape.vocab_size,
        block=run.block(),
        flops_per_token=run.flops_per_token(),
        length=length,
    )


def _length(settings: Settings) -> int:
    """Tokens in an example: data.num_context if set, else that of the encoded examples, else all positions."""
    if settings.data.num_context:
        return int(settings.data.num_context)
    if settings.data.input:
        from course_lib.gptsan.examples import Examples

        return int(Examples(settings.data.input).report["num_context"])
    return shape_of(settings).max_position_embeddings


class _Run:
    """Activations and floating-point operations of one micro-batch, computed layer by layer."""

    def __init__(self, settings: Settings, shape: ShapeConfig, length: int, trained: set[str]) -> None:
        self.settings, self.shape, self.trained = settings, shape, trained
        self.layers: int = shape.num_switch_layers + shape.num_ext_layers
        self.length = length
        self.slots: int = length + (settings.spout.mode != "none")
        self.tokens: int = settings.batch.micro_size * length
        self.width: int = BYTES[settings.precision.dtype]
        # Bytes of a tensor [B, T, d_model].
        self.stream: int = self.width * self.tokens * shape.d_model
        self.learns = [self._has(f"model.blocks.{layer}.") for layer in range(self.layers)]
        starts = [layer for layer, learns in enumerate(self.learns) if learns]
        if self._has(EXTRA_POSITIONS):
            starts.append(shape.num_switch_layers)
        if self._has("model.spout.", *EMBEDDINGS):
            starts.append(0)
        # The first layer that gradients reach.
        self.first = min(starts, default=self.layers)

    def _has(self, *prefixes: str) -> bool:
        return any(name.startswith(prefixes) for name in self.trained)

    def kept(self, layer: int) -> int:
        """Activations [bytes] that a layer keeps for the backward pass, without recomputation."""
        if layer < self.first:
            return 0
        learns = self.learns[layer]
        fused: bool = self.settings.model.attention == "sdpa"
        # The attention output is kept for a trained output projection, and always by the fused kernel.
        mixture = learns or fused
        # Always kept: q, k, v and the norm's input. Kept in a trained layer: x.
        attention = (4 + learns + mixture) * self.stream + self._core()
        if layer >= self.shape.num_switch_layers:
            # Always kept: the input of swish and of the norm. Kept in a trained layer: the output of swish and x.
            wide = self.width * self.tokens * self.shape.d_ext
            return attention + (1 + learns) * (self.stream + wide)
        return attention + self._switch(learns)

    def _core(self) -> int:
        """Activations [bytes] that the attention itself keeps.

        With sdpa: the mask in the dtype of the scores, and one fp32 number per query and head. With eager attention: a
        boolean mask and the softmax, in fp32 and, if the run computes in 16 bits, in 16 bits too.
        """
        rows, mask = self.tokens * self.shape.num_heads, self.tokens * self.slots
        if self.settings.model.attention == "sdpa":
            return 4 * rows + self.width * mask
        return rows * self.slots * (4 + (self.width if self.width < 4 else 0)) + mask

    def _switch(self, learns: bool) -> int:
        """Activations [bytes] that the feed-forward part of a switch layer keeps.

        Each token goes to one expert, so the hidden activations of all experts together are one tensor [B·T, d_ff].
        """
        # The router computes in fp32: 4 bytes a number.
        experts, full = self.shape.num_experts, 4 * self.tokens * self.shape.d_model
        jitter: bool = self.settings.loss.router_jitter > 0
        # The jitter noise, and the input of a trained router where it is a tensor of its own.
        router = full * jitter
        if learns and (jitter or self.width < 4):
            router += full
        hidden = self.width * self.tokens * self.shape.d_ff
        # Always kept: the experts' output, the gated output, tanh, the norm's input. Kept in a trained layer: x, and x
        # sorted by expert.
        streams = 4 + 2 * learns
        # Per token: three times the probabilities, indices, gates, and the statistics of the norms.
        small = 12 * experts + 20 + 6 * self.width
        return streams * self.stream + hidden + router + small * self.tokens

    def activations(self) -> int:
        """Activations [bytes] that the forward pass keeps, from the embedding to the input of the head.

        With model.recompute "full" these are the input of each layer that gradients reach, one mask, and the routers'
        probabilities.
        """
        # Inputs of swish, of a trained last projection and of a trained head.
        ends = 1 + self._has("model.last_project.") + self._has(EMBEDDINGS[0])
        if self.settings.model.recompute == "full":
            router = 12 * self.tokens * self.shape.num_experts * sum(self.learns[: self.shape.num_switch_layers])
            return (self.layers - self.first + ends) * self.stream + self.tokens * self.slots + router
        return sum(map(self.kept, range(self.layers))) + ends * self.stream

    def block(self) -> int:
        """The most bytes that one layer needs in the backward pass besides the kept activations.

        These are the gradients of its activations and, with recomputation, the recomputed activations.
        """
        shape, again, needs = self.shape, self.settings.model.recompute == "full", [0]
        for layer in range(self.first, self.layers):
            # The backward pass handles one expert at a time.
            wide = shape.d_ext if layer >= shape.num_switch_layers else shape.d_ff // shape.num_experts
            kept = self.kept(layer) - self.stream if again else 0
            needs.append(kept + max(2 * self.width * self.tokens * wide, 4 * self.stream, self._core()))
        return max(needs)

    def flops_per_token(self) -> float:
        """Floating-point operations to train on one token; a multiply-add counts as two, recomputation is not counted.

        A weight costs 2 in the forward pass, 2 more if gradients pass through it, and 2 more if it is trained.
        Attention over the whole sequence costs 4·d_model·length a layer in the forward pass, and twice that again in
        the backward pass of a layer that gradients reach.
        """
        shape, h = self.shape, self.shape.d_model
        work = 0.0
        for layer in range(self.layers):
            switch = layer < shape.num_switch_layers
            weights = 4 * h * h + 2 * h * (shape.d_ff if switch else shape.d_ext)
            weights += switch * (h * h + shape.num_experts * h)
            through = layer > self.first or (layer == self.first and self._below(layer))
            work += weights * 2.0 * (1 + through + self.learns[layer])
            work += 4.0 * h * self.length * (3 if layer >= self.first else 1)
        work += h * h * 2.0 * (2 + self._has("model.last_project."))
        return work + h * shape.vocab_size * 2.0 * (2 + self._has(EMBEDDINGS[0]))

    def _below(self, layer: int) -> bool:
        """Whether trained parameters (embeddings, extra positions or spout) feed directly into a layer."""
        extra = layer == self.shape.num_switch_layers and self._has(EXTRA_POSITIONS)
        return extra or (layer == 0 and self._has(*EMBEDDINGS))
