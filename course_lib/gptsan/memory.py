"""What of a GPTSAN lies in memory and how much work it is, for the planner of chapter 4.

Parameters are exact; activations and
logits are formulas: tests/gptsan/test_memory.py holds both against PyTorch. A layer counts as trained if any of its parameters is. On
the safe side: all tokens find room at an expert, and all positions learn.
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

# A GptsanConfig, whose module imports this one.
Settings: TypeAlias = Any

MODEL_TYPE = "gptsan-japanese"
EMBEDDINGS = ("model.embed_tokens.weight", "model.position_embeddings.weight")
EXTRA_POSITIONS = "model.extra_position_embeddings.weight"
SPOUT_LAYERS = 8
LOGIT_BYTES = 20  # fp32: logits (for log Z) and log-softmax, and three of their size when the backward pass begins


def shape_of(settings: Settings) -> ShapeConfig:
    """The shape of the model: that of model.checkpoint, else model.shape. Raises CourseError for a folder that holds no GPTSAN."""
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
    """(name, elements) of every parameter in the order of GPTSanForCausalLM. The head is the embedding, tied; its bias is a buffer."""
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
    """The sizes of a run, for the memory planner."""
    shape, length = shape_of(settings), _length(settings)
    named = dict(tensors(shape))
    still = frozen_names(settings.model.ignore, settings.spout.mode, shape, list(named))
    run = _Run(settings, shape, length, named.keys() - still)
    return Sizes(
        trained=tuple((size, decays(name)) for name, size in named.items() if name not in still),
        frozen=tuple(size for name, size in named.items() if name in still),
        activations=run.activations(),
        logits=LOGIT_BYTES * run.tokens * shape.vocab_size,
        block=run.block(),
        flops_per_token=run.flops_per_token(),
        length=length,
    )


def _length(settings: Settings) -> int:
    """Tokens of an example: as set, else as encoded, else all positions."""
    if settings.data.num_context:
        return int(settings.data.num_context)
    if settings.data.input:
        from course_lib.gptsan.examples import Examples

        return int(Examples.open(settings.data.input).report["num_context"])
    return shape_of(settings).max_position_embeddings


class _Run:
    """A micro batch of a run, layer by layer."""

    def __init__(self, settings: Settings, shape: ShapeConfig, length: int, trained: set[str]) -> None:
        self.settings, self.shape, self.trained = settings, shape, trained
        self.layers: int = shape.num_switch_layers + shape.num_ext_layers
        self.length = length
        self.slots: int = length + (settings.spout.mode != "none")
        self.tokens: int = settings.batch.micro_size * length
        self.width: int = BYTES[settings.precision.dtype]
        self.stream: int = self.width * self.tokens * shape.d_model  # bytes of a tensor [B, T, d_model]
        self.learns = [self._has(f"model.blocks.{layer}.") for layer in range(self.layers)]
        starts = [layer for layer, learns in enumerate(self.learns) if learns]
        if self._has(EXTRA_POSITIONS):
            starts.append(shape.num_switch_layers)
        if self._has("model.spout.", *EMBEDDINGS):
            starts.append(0)
        self.first = min(starts, default=self.layers)  # from this layer on there are gradients

    def _has(self, *prefixes: str) -> bool:
        return any(name.startswith(prefixes) for name in self.trained)

    def kept(self, layer: int) -> int:
        """What a layer keeps for the backward pass if nothing is recomputed [bytes]."""
        if layer < self.first:
            return 0
        learns = self.learns[layer]
        fused: bool = self.settings.model.attention == "sdpa"
        mixture = learns or fused  # read by the projection where that learns, and by the fused kernel itself
        attention = (4 + learns + mixture) * self.stream + self._core()  # q, k, v, the norm's input; x
        if layer >= self.shape.num_switch_layers:
            wide = self.width * self.tokens * self.shape.d_ext  # before the swish; and after it
            return attention + (1 + learns) * (self.stream + wide)  # the norm's input; x
        return attention + self._switch(learns)

    def _core(self) -> int:
        """What the attention itself keeps: its mask in the format of the scores and a number per row; eager: a bit mask and the scores."""
        rows, mask = self.tokens * self.shape.num_heads, self.tokens * self.slots
        if self.settings.model.attention == "sdpa":
            return 4 * rows + self.width * mask
        return rows * self.slots * (4 + (self.width if self.width < 4 else 0)) + mask  # softmax in fp32; in 16 bit

    def _switch(self, learns: bool) -> int:
        """The feed-forward part of a switch layer: each token is with one expert, so that there is one tensor of its width for all."""
        experts, full = self.shape.num_experts, 4 * self.tokens * self.shape.d_model  # the router computes in fp32
        jitter: bool = self.settings.loss.router_jitter > 0
        router = full * jitter  # the noise
        if learns and (jitter or self.width < 4):
            router += full  # its input
        hidden = self.width * self.tokens * self.shape.d_ff
        streams = 4 + 2 * learns  # experts' output, the gated one, tanh, the norm's input; x, x in the experts' order
        small = 12 * experts + 20 + 6 * self.width  # probabilities three times, indices, gates, the norms' statistics
        return streams * self.stream + hidden + router + small * self.tokens

    def activations(self) -> int:
        """What the forward pass keeps [bytes], from the embedding to the head's input.

        With recompute the input of each layer that gradients flow to, and one mask.
        """
        ends = 1 + self._has("model.last_project.") + self._has(EMBEDDINGS[0])  # inputs of swish, projection, head
        if self.settings.model.recompute == "full":
            router = 12 * self.tokens * self.shape.num_experts * sum(self.learns[: self.shape.num_switch_layers])
            return (self.layers - self.first + ends) * self.stream + self.tokens * self.slots + router
        return sum(map(self.kept, range(self.layers))) + ends * self.stream

    def block(self) -> int:
        """What a layer needs in the backward pass besides what was kept: gradients of its tensors, and what it computes again."""
        shape, again, needs = self.shape, self.settings.model.recompute == "full", [0]
        for layer in range(self.first, self.layers):
            wide = shape.d_ext if layer >= shape.num_switch_layers else shape.d_ff // shape.num_experts  # one at a time
            kept = self.kept(layer) - self.stream if again else 0
            needs.append(kept + max(2 * self.width * self.tokens * wide, 4 * self.stream, self._core()))
        return max(needs)

    def flops_per_token(self) -> float:
        """Floating-point operations to train on one token, a multiply-add as two; what recompute does again is not counted.

        A weight costs 2 in the forward pass, 2 where gradients pass through it, 2 where it is trained; attention over the whole sequence,
        4·width·length a layer, costs that twice again where there are gradients.
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
        """Whether what goes into a layer is trained."""
        extra = layer == self.shape.num_switch_layers and self._has(EXTRA_POSITIONS)
        return extra or (layer == 0 and self._has(*EMBEDDINGS))
