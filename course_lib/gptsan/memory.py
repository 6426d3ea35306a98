"""What the memory planner needs to know of a GPTSAN: its parameters, layers, logits and operations.

A layer counts as trained if any of its parameters is trained. The figures are an upper bound: no expert overflows, and
every position has a target. tests/gptsan/test_memory.py compares them with PyTorch. This module imports torch only to
count parameters.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from course_lib.checkpoints.number_formats import BYTES
from course_lib.gptsan.freeze import BLOCK, SPOUT
from course_lib.gptsan.shape import EMBEDDINGS, EXTRA_POSITIONS, GPTSanShape
from course_lib.settings.config import to_dict
from course_lib.training.memory import Layer, Parameter, Sizes, parameters_of

# Bytes per logit in fp32: the logits (stored for log Z), their log-softmax, and three tensors of the same size at the
# start of the backward pass.
LOGIT_BYTES = 20
LAST = "model.last_project.weight"
# Parts of the names of matrices that autocast does not cast: routers compute in fp32, positions are only looked up.
NOT_CAST = ("router.", "position_embeddings.")


@cache
def counted_parameters(shape: GPTSanShape) -> tuple[Parameter, ...]:
    """Return the parameters of a model of this shape, in its order, counted on the meta device."""
    import torch

    from course_lib.gptsan.hf_config import GPTSanConfig
    from course_lib.gptsan.model import GPTSanForCausalLM

    # A vocabulary may be too small for the published ids.
    ids = dict.fromkeys(("separator_token_id", "pad_token_id", "eos_token_id"))
    with torch.device("meta"):
        return parameters_of(GPTSanForCausalLM(GPTSanConfig(**to_dict(shape), **ids)))


def sizes(settings: Any, shape: GPTSanShape, length: int, autocast: bool) -> Sizes:
    """Return the sizes of a run with these settings, a GPTSanRunConfig, on examples of `length` tokens.

    With `autocast`, the trained weights are in fp32, and so are the norms and the residual
    stream on a GPU; frozen weights and matrix products are in the run's dtype.
    """
    frozen = settings.frozen(shape)
    counted = tuple(each._replace(trained=each.name not in frozen) for each in counted_parameters(shape))
    blocks = [list[Parameter]() for _ in range(shape.num_layers)]
    for each in counted:
        if match := BLOCK.match(each.name):
            blocks[int(match[1])].append(each)
    trained = {each.name for each in counted if each.trained}
    element_bytes, tokens = BYTES[settings.precision.dtype], settings.batch.micro_size * length

    # Layers that trained embeddings or extra positions feed directly.
    fed = {0} if trained.intersection(EMBEDDINGS) else set[int]()
    if EXTRA_POSITIONS in trained:
        fed.add(shape.num_switch_layers)
    learning = [any(each.trained for each in block) for block in blocks]
    starts = fed | {index for index, learns in enumerate(learning) if learns}
    # The first layer that gradients reach.
    first = min(starts, default=shape.num_layers)
    if any(name.startswith(SPOUT) for name in trained):
        first = 0
    layers = tuple(
        _layer(settings, shape, length, autocast, index, blocks[index]) for index in range(first, shape.num_layers)
    )

    # Inputs to swish, to a trained last projection and to a trained head.
    ends = element_bytes * tokens * shape.d_model * (1 + (LAST in trained) + (EMBEDDINGS[0] in trained))
    if settings.model.recompute == "full":
        # Not recomputed: the mask, one byte per element, and three copies of the routers' probabilities in fp32.
        routers = sum(learning[: shape.num_switch_layers])
        ends += _mask_elements(settings, length) + 12 * tokens * shape.num_experts * routers
    return Sizes(
        counted=counted,
        layers=layers,
        ends=ends,
        logits=LOGIT_BYTES * tokens * shape.vocab_size,
        flops_per_token=_flops_per_token(shape, length, counted, blocks, first, fed),
        length=length,
        all_casts=_cast_bytes(counted, element_bytes) if autocast else 0,
    )


def _layer(
    settings: Any, shape: GPTSanShape, length: int, autocast: bool, index: int, parameters: Iterable[Parameter]
) -> Layer:
    """Return layer `index`, a switch layer or an extra layer, with its parameters."""
    is_switch, learns = index < shape.num_switch_layers, any(each.trained for each in parameters)
    element_bytes = BYTES[settings.precision.dtype]
    tokens, stream_bytes = settings.batch.micro_size * length, 4 if autocast else element_bytes
    router_bytes = 0
    if is_switch:
        # The router computes in fp32: the jitter noise, and its input if that is trained and another tensor.
        jitter = settings.loss.router_jitter > 0
        inputs = jitter + (learns and (jitter or element_bytes < 4))
        # Per token: three copies of the probabilities, plus indices, gates and norm statistics.
        router_bytes = tokens * (4 * shape.d_model * inputs + 12 * shape.num_experts + 20 + 6 * element_bytes)
    return Layer(
        samples=settings.batch.micro_size,
        length=length,
        # The spout takes up a position.
        keys=length + (settings.spout.mode != "none"),
        width=shape.d_model,
        heads=shape.num_heads,
        ffn=shape.d_ff if is_switch else shape.d_ext,
        experts=shape.num_experts if is_switch else 1,
        matrix_bytes=element_bytes,
        norm_bytes=stream_bytes,
        stream_bytes=stream_bytes,
        # A switch layer also keeps what its gates multiply.
        norm_tensors=3 if is_switch else 2,
        # queries and result; if trained, the input, which autocast casts three times: for queries, keys and values
        attention_tensors=2 + learns * (3 if autocast else 1),
        # Results of the experts and of tanh in a switch layer; if trained, the input, there also sorted by expert.
        feed_forward_tensors=(2 + 2 * learns) if is_switch else int(learns),
        # ReLU keeps its output, which is the input of a trained matrix, too; swish keeps its input.
        wide_tensors=1 if is_switch else 1 + learns,
        router_bytes=router_bytes,
        mask_elements=_mask_elements(settings, length),
        recompute=settings.model.recompute,
        recast_bytes=_cast_bytes(parameters, element_bytes) if autocast and settings.model.recompute == "full" else 0,
    )


def _mask_elements(settings: Any, length: int) -> int:
    """Return the elements of the attention mask [length, length + 1], which there is only with a spout."""
    return length * (length + 1) if settings.spout.mode != "none" else 0


def _cast_bytes(parameters: Iterable[Parameter], element_bytes: int) -> int:
    """Return the bytes of the casts of the trained matrices among some parameters."""
    matrices = [each for each in parameters if each.trained and len(each.shape) == 2]
    return element_bytes * sum(each.elements for each in matrices if not any(part in each.name for part in NOT_CAST))


def _flops_per_token(
    shape: GPTSanShape,
    length: int,
    counted: Iterable[Parameter],
    blocks: Sequence[Iterable[Parameter]],
    first: int,
    fed: set[int],
) -> float:
    """Return the floating-point operations for training on one token.

    A multiply-add counts as two operations; recomputation is not counted. A weight costs 2 in the forward pass, 2 more
    if gradients pass through it, and 2 more if it is trained. Attention over the whole sequence costs
    4·d_model·length per layer in the forward pass, and twice as much in the backward pass of a layer that gradients
    reach: those from `first` on. The input of a layer in `fed` is trained.
    """
    work = 0.0
    for index, block in enumerate(blocks):
        through = index > first or (index == first and index in fed)
        for each in block:
            if len(each.shape) == 2:
                # A token goes to one of the experts.
                elements = each.elements / shape.num_experts if ".experts." in each.name else each.elements
                work += 2.0 * elements * (1 + through + each.trained)
        work += 4.0 * shape.d_model * length * (3 if index >= first else 1)
    for each in counted:
        # The embedding is the output head.
        if each.name in (LAST, EMBEDDINGS[0]):
            work += 2.0 * each.elements * (2 + each.trained)
    return work
