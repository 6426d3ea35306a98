"""Memory and floating-point operations for a GPTSAN training run, used by the memory planner in chapter 4.

Parameter counts are exact. Sizes of activations and logits come from formulas. tests/gptsan/test_memory.py compares
both with PyTorch. A layer counts as trained if any of its parameters is trained. The formulas give an upper bound: they
assume that no expert overflows and that every position has a target.
"""

from typing import Any

from course_lib.checkpoints.number_formats import BYTES
from course_lib.gptsan.shape import EMBEDDINGS, EXTRA_POSITIONS
from course_lib.gptsan.shape import GPTSanShape as GPTSANShape
from course_lib.gptsan.tf_names import parameters
from course_lib.models.memory import Sizes
from course_lib.training.parameter_groups import decays

# Bytes per logit in fp32: the logits (stored for log Z), their log-softmax, and three tensors of the same size at the
# start of the backward pass.
LOGIT_BYTES = 20


def gptsan_sizes(settings: Any, shape: GPTSANShape, length: int, autocast: bool) -> Sizes:
    """Return the sizes and FLOPs of a run with these settings, a GptsanConfig, on examples of `length` tokens.

    With `autocast`, the trained weights are in fp32 and so are the norms and the residual stream on a GPU; frozen
    weights and matrix products are in the run's dtype.
    """
    named, frozen = parameters(shape), settings.frozen(shape)
    trained = {name: size for name, size in named.items() if name not in frozen}
    profile = _Profile(settings, shape, length, trained, autocast)
    return Sizes(
        trained=tuple((size, decays(name)) for name, size in trained.items()),
        frozen=tuple(size for name, size in named.items() if name in frozen),
        activations=profile.activations(),
        logits=LOGIT_BYTES * profile.tokens * shape.vocab_size,
        block=profile.block(),
        flops_per_token=profile.flops_per_token(),
        length=length,
        casts=profile.casts(),
    )


class _Profile:
    """Activations and floating-point operations for one micro-batch, computed layer by layer."""

    def __init__(self, settings: Any, shape: GPTSANShape, length: int, trained: dict[str, int], autocast: bool) -> None:
        self.shape, self.length, self.trained, self.autocast = shape, length, trained, autocast
        self.again = bool(settings.model.recompute == "full")
        self.jitter = bool(settings.loss.router_jitter)
        # The spout takes up a position, and only with it is there an attention mask [T, T+1].
        self.mask: int = length * (length + 1) if settings.spout.mode != "none" else 0
        self.tokens: int = settings.batch.micro_size * length
        self.width: int = BYTES[settings.precision.dtype]
        # Bytes in a [B, T, d_model] tensor: in matrix products, and in norms and the residual stream.
        self.stream: int = self.width * self.tokens * shape.d_model
        self.residual: int = 4 * self.tokens * shape.d_model if autocast else self.stream
        self.learns = [self._has(f"model.blocks.{layer}.") for layer in range(shape.num_layers)]
        # Layers that trained embeddings or extra positions feed directly.
        self.fed = {0} if self._has(*EMBEDDINGS) else set()
        if self._has(EXTRA_POSITIONS):
            self.fed.add(shape.num_switch_layers)
        starts = {layer for layer, learns in enumerate(self.learns) if learns} | self.fed
        # First layer that gradients reach.
        self.first = 0 if self._has("model.spout.") else min(starts, default=shape.num_layers)

    def _has(self, *prefixes: str) -> bool:
        return any(name.startswith(prefixes) for name in self.trained)

    def kept(self, layer: int) -> int:
        """Return the activations [bytes] that a layer stores for the backward pass, without recomputation."""
        if layer < self.first:
            return 0
        learns = self.learns[layer]
        # Always stored: q, k, v, the attention output and the norm input. Also stored in a trained layer: x, which
        # autocast casts three times, for q, k and v.
        inputs = learns * (3 if self.autocast else 1)
        attention = (4 + inputs) * self.stream + self.residual + self._core()
        if layer >= self.shape.num_switch_layers:
            # Always stored: the inputs to swish and the norm. Also stored in a trained layer: the swish output and x.
            wide = self.width * self.tokens * self.shape.d_ext
            return attention + self.residual + learns * self.stream + (1 + learns) * wide
        return attention + self._switch(learns)

    def _core(self) -> int:
        """Return the activations [bytes] of SDPA: the mask in the run's dtype, and an fp32 value per query and head."""
        return 4 * self.tokens * self.shape.num_heads + self.width * self.mask

    def _switch(self, learns: bool) -> int:
        """Return the activations [bytes] that the feed-forward part of a switch layer stores."""
        # The router computes in fp32: 4 bytes per value.
        experts, full = self.shape.num_experts, 4 * self.tokens * self.shape.d_model
        # The jitter noise, and the input to a trained router if it is a separate tensor.
        router = full * self.jitter
        if learns and (self.jitter or self.width < 4):
            router += full
        # Each token goes to one expert, so the hidden activations of all experts form one tensor [B·T, d_ff].
        hidden = self.width * self.tokens * self.shape.d_ff
        # Always stored: the expert output and the tanh output, the gated output and the norm input. Also stored in a
        # trained layer: x, and x sorted by expert.
        streams = (2 + 2 * learns) * self.stream + 2 * self.residual
        # Per token: three copies of the probabilities, plus indices, gates and norm statistics.
        small = 12 * experts + 20 + 6 * self.width
        return streams + hidden + router + small * self.tokens

    def activations(self) -> int:
        """Return the activations [bytes] that the forward pass stores, from the embedding to the input of the head.

        With recomputation: the input to each layer that gradients reach, one mask, and the router probabilities.
        """
        # Inputs to swish, to a trained last projection and to a trained head.
        ends = 1 + self._has("model.last_project.") + self._has(EMBEDDINGS[0])
        if self.again:
            router = 12 * self.tokens * self.shape.num_experts * sum(self.learns[: self.shape.num_switch_layers])
            return (self.shape.num_layers - self.first) * self.residual + ends * self.stream + self.mask + router
        return sum(map(self.kept, range(self.shape.num_layers))) + ends * self.stream

    def block(self) -> int:
        """Return the most memory [bytes] that a layer's backward pass needs besides the stored activations."""
        shape, needs = self.shape, [0]
        for layer in range(self.first, self.shape.num_layers):
            # The backward pass handles one expert at a time.
            wide = shape.d_ext if layer >= shape.num_switch_layers else shape.d_ff // shape.num_experts
            kept = self.kept(layer) - self.residual + self._cast(f"model.blocks.{layer}.") if self.again else 0
            needs.append(kept + max(2 * self.width * self.tokens * wide, 4 * self.residual, self._core()))
        return max(needs)

    def casts(self) -> int:
        """Return the bytes of the casts of trained weights that autograd stores. Recomputed layers store none."""
        return self._cast("") - (self._cast("model.blocks.") if self.again else 0)

    def _cast(self, prefix: str) -> int:
        """Return the bytes of the casts of the trained weights whose name begins with `prefix`.

        Autocast casts all matrices but the routers', and the embedding for the head.
        """
        if not self.autocast:
            return 0
        left = ("norm.", "router.", "position_embeddings.")
        names = [name for name in self.trained if name.startswith(prefix) and not any(part in name for part in left)]
        return self.width * sum(self.trained[name] for name in names)

    def flops_per_token(self) -> float:
        """Return the floating-point operations for training on one token.

        A multiply-add counts as two operations; recomputation is not counted. A weight costs 2 in the forward pass, 2
        more if gradients pass through it, and 2 more if it is trained. Attention over the whole sequence costs
        4·d_model·length per layer in the forward pass, and twice as much in the backward pass of a layer that gradients
        reach.
        """
        shape, h = self.shape, self.shape.d_model
        work = 0.0
        for layer in range(self.shape.num_layers):
            switch = layer < shape.num_switch_layers
            weights = 4 * h * h + 2 * h * (shape.d_ff if switch else shape.d_ext)
            weights += switch * (h * h + shape.num_experts * h)
            through = layer > self.first or (layer == self.first and layer in self.fed)
            work += weights * 2.0 * (1 + through + self.learns[layer])
            work += 4.0 * h * self.length * (3 if layer >= self.first else 1)
        work += h * h * 2.0 * (2 + self._has("model.last_project."))
        return work + h * shape.vocab_size * 2.0 * (2 + self._has(EMBEDDINGS[0]))
