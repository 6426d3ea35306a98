"""What the memory planner needs to know of a GPT-2 or GPT-NeoX: its parameters, layers, logits and operations.

The model is trained, or it is frozen behind a prefix: then no matrix keeps its input, but gradients flow through every
layer to its part of the prefix. tests/training/test_planner.py and tests/prefix/test_memory.py compare the figures with
PyTorch. This module imports neither torch nor transformers.
"""

from functools import cache

from course_lib.checkpoints.number_formats import BYTES, NumberFormat
from course_lib.models.config import ModelConfig
from course_lib.models.families import BY_ARCHITECTURE
from course_lib.training.memory import Layer, Parameter, Sizes
from course_lib.training.parameter_groups import is_matrix

# Bytes per logit: the fp32 log-softmax and, at the start of the backward pass, two gradients of the same size.
LOGIT_BYTES = 12
# Embeddings that are only looked up. That of GPT-2's tokens is its output head, too.
LOOKED_UP = ("transformer.wpe.weight", "gpt_neox.embed_in.weight")


@cache
def parameters(shape: ModelConfig) -> tuple[Parameter, ...]:
    """Return the parameters of a model, with their names in transformers and in its order.

    To ask the model itself would import transformers, for 5 s. tests/training/test_planner.py compares the two.
    """
    width, ffn = shape.hidden_size, shape.ffn
    embedding = shape.vocab_size, width
    # In `block`, a module's name → the shape of its weight; each module has a bias, too.
    block: dict[str, tuple[int, ...]]
    if shape.architecture == "gpt2":
        first = [
            Parameter("transformer.wte.weight", embedding),
            Parameter("transformer.wpe.weight", (shape.max_position_embeddings, width)),
        ]
        # [inputs, outputs]
        block = {
            "ln_1": (width,),
            "attn.c_attn": (width, 3 * width),
            "attn.c_proj": (width, width),
            "ln_2": (width,),
            "mlp.c_fc": (width, ffn),
            "mlp.c_proj": (ffn, width),
        }
        outputs = -1
        norm = "transformer.ln_f"
        # The output head is the embedding.
        head = []
    else:
        first = [Parameter("gpt_neox.embed_in.weight", embedding)]
        # [outputs, inputs]
        block = {
            "input_layernorm": (width,),
            "post_attention_layernorm": (width,),
            "attention.query_key_value": (3 * width, width),
            "attention.dense": (width, width),
            "mlp.dense_h_to_4h": (ffn, width),
            "mlp.dense_4h_to_h": (width, ffn),
        }
        outputs = 0
        norm = "gpt_neox.final_layer_norm"
        head = [Parameter("lm_head.weight", embedding)]

    weights: dict[str, tuple[int, ...]] = {}
    for number in range(shape.num_layers):
        for name, weight in block.items():
            weights[f"{BY_ARCHITECTURE[shape.architecture].blocks}.{number}.{name}"] = weight
    weights[norm] = (width,)
    found = first
    for name, weight in weights.items():
        found += [Parameter(f"{name}.weight", weight), Parameter(f"{name}.bias", (weight[outputs],))]
    return (*found, *head)


def flops_per_token(shape: ModelConfig, length: float) -> float:
    """Return the operations for training on one token: 6·parameters + 12·layers·width·length.

    A multiply-add counts as two, attention over the whole sequence (PaLM, arXiv:2204.02311, appendix B). An embedding
    that is only looked up, as in GPT-NeoX, does not count, nor does recomputation.
    """
    return 6.0 * _multiplied(shape) + 12.0 * shape.num_layers * shape.hidden_size * length


def _multiplied(shape: ModelConfig) -> int:
    """Return the number of parameters without the embedding of GPT-NeoX, which is only looked up."""
    embedding = BY_ARCHITECTURE["gpt-neox"].embedding
    return sum(each.elements for each in parameters(shape) if each.name != embedding)


def sizes(shape: ModelConfig, samples: int, length: int, dtype: NumberFormat, autocast: bool) -> Sizes:
    """Return the sizes of a run that trains all parameters on micro-batches of `samples`, each of `length` tokens.

    The weights are in `dtype` or, with `autocast`, in fp32; then only the matrix products are in `dtype`.
    """
    counted, element_bytes = parameters(shape), BYTES[dtype]
    stream_bytes = 4 if autocast else element_bytes
    is_neox, is_eager = shape.architecture == "gpt-neox", shape.attention == "eager"
    # The attention of GPT-NeoX counts as 7 tensors: its input, the input of the projection, the tensor with queries,
    # keys and values before rotation (3), and rotated queries and keys (2). The values are a view of the tensor of 3.
    core_tensors = 0
    if is_neox and is_eager:
        # Eager attention copies the values (1), which frees the tensor of 3: 7 - 3 + 1 = 7 - 2 = 5 tensors.
        core_tensors = -2
    if is_neox and not is_eager:
        # Fused attention keeps its result beside the projection's input: 7 + 1 = 8 tensors.
        core_tensors = 1
    cast = [each for each in counted if autocast and len(each.shape) == 2 and each.name not in LOOKED_UP]
    layer = Layer(
        samples=samples,
        length=length,
        keys=length,
        width=shape.hidden_size,
        heads=shape.num_attention_heads,
        ffn=shape.ffn,
        matrix_bytes=element_bytes,
        norm_bytes=stream_bytes,
        stream_bytes=stream_bytes,
        norm_tensors=_norms(shape),
        # input of QKV, queries, input of the projection
        attention_tensors=3,
        rotated_tensors=2 if is_neox else 0,
        core_tensors=core_tensors,
        # input of the first matrix; input and output of GELU, whose fused kernels keep nothing else
        feed_forward_tensors=1,
        wide_tensors=2,
        score_bytes=_score_bytes(shape, element_bytes, stream_bytes) if is_eager else 0,
        dropout=shape.hidden_dropout_prob > 0,
        recompute=shape.recompute,
        recast_bytes=element_bytes * sum(each.elements for each in cast if each.name.startswith(_recomputed(shape))),
    )
    return Sizes(
        counted=counted,
        layers=(layer,) * shape.num_layers,
        # the embedding's dropout, and the inputs of the last norm and of the output head
        ends=(layer.dropout + stream_bytes + element_bytes) * layer.stream,
        logits=LOGIT_BYTES * layer.tokens * shape.vocab_size,
        flops_per_token=flops_per_token(shape, length),
        length=length,
        all_casts=element_bytes * sum(each.elements for each in cast),
        matrices=_matrices(counted),
    )


def frozen_sizes(
    shape: ModelConfig,
    encoder: tuple[Parameter, ...],
    prefix: int,
    samples: int,
    length: int,
    dtype: NumberFormat,
    autocast: bool,
) -> Sizes:
    """Return the sizes of a run that trains the encoder of a prefix of `prefix` positions before a frozen model.

    The model is in `dtype`. With `autocast`, the encoder is in fp32, and so are the norms on a GPU.
    """
    base, element_bytes = parameters(shape), BYTES[dtype]
    is_neox = shape.architecture == "gpt-neox"
    layer = Layer(
        samples=samples,
        length=length,
        # copied for each sample
        keys=prefix + length,
        width=shape.hidden_size,
        heads=shape.num_attention_heads,
        ffn=shape.ffn,
        matrix_bytes=element_bytes,
        norm_bytes=4 if autocast else element_bytes,
        stream_bytes=element_bytes,
        norm_tensors=_norms(shape),
        # queries and result; the queries of GPT-2 are a view of the tensor with its queries, keys and values
        attention_tensors=2 if is_neox else 4,
        # A frozen matrix keeps no input: only GELU does.
        feed_forward_tensors=0,
        wide_tensors=1,
        mask_elements=samples * length * (prefix + length),
        recompute=shape.recompute,
    )
    # What the encoder returns, and its gradient.
    ends = 2 * element_bytes * prefix * 2 * shape.num_layers * shape.hidden_size
    if shape.recompute == "full":
        # The input of the last norm. Without recomputation, the first norm of all keeps none instead, because gradients
        # do not reach the embedding.
        ends += layer.norm_bytes * layer.stream
    return Sizes(
        counted=(*encoder, *(each._replace(trained=False) for each in base)),
        layers=(layer,) * shape.num_layers,
        ends=ends,
        logits=LOGIT_BYTES * layer.tokens * shape.vocab_size,
        # 4 FLOPs per weight instead of 6, because no gradients are computed for frozen weights.
        flops_per_token=4.0 * _multiplied(shape) + 12.0 * shape.num_layers * shape.hidden_size * layer.keys,
        length=length,
        all_casts=element_bytes * sum(each.elements for each in encoder if len(each.shape) == 2) if autocast else 0,
    )


def _norms(shape: ModelConfig) -> int:
    """Return the number of norms of a layer that have different inputs."""
    return 1 if shape.use_parallel_residual else 2


def _score_bytes(shape: ModelConfig, element_bytes: int, stream_bytes: int) -> int:
    """Return what eager attention keeps for each query, key and head [bytes].

    GPT-NeoX and autocast compute the softmax in fp32; the result is cast to the format of matrix products.
    """
    softmax = 4 if shape.architecture == "gpt-neox" else stream_bytes
    if shape.attention_probs_dropout_prob:
        # One byte for dropout.
        return softmax + element_bytes + 1
    return softmax if softmax == element_bytes else softmax + element_bytes


def _recomputed(shape: ModelConfig) -> tuple[str, ...]:
    """Return the beginnings of the names of the parameters in the first layer that the backward pass uses twice."""
    layer = f"{BY_ARCHITECTURE[shape.architecture].blocks}.0."
    beginnings = {"full_attn": (f"{layer}attn.", f"{layer}attention."), "full": (layer,)}
    return beginnings.get(shape.recompute, ())


def _matrices(counted: tuple[Parameter, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the elements of the matrices that Muon updates, in one tuple for each shape."""
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for each in counted:
        if is_matrix(each.name, each.shape):
            by_shape.setdefault(each.shape, []).append(each.elements)
    return tuple(map(tuple, by_shape.values()))
