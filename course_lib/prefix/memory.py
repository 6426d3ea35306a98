"""Memory and compute of a prefix-tuning run, for the memory planner of chapter 4.

Parameter counts are exact; the sizes of activations and logits come from formulas. tests/prefix/test_memory.py checks
both against PyTorch. Gradients flow through every block to its prefix, so a frozen base keeps activations too. But no
block keeps tensors that only the gradients of its own weights would need.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeAlias

from course_lib import config
from course_lib.checkpoints.number_formats import BYTES
from course_lib.errors import CourseError
from course_lib.files import read_json
from course_lib.models.config import ModelConfig as Shape
from course_lib.models.memory import LOGIT_BYTES, Sizes, gpt_sizes, tensors
from course_lib.pretrain.config import PretrainConfig

# A PrefixConfig. Its module imports this one, so it cannot be imported here.
Settings: TypeAlias = Any

# For each model_type of a config.json: the architecture, and the course's key for each key of the file.
FAMILIES: dict[str, tuple[str, dict[str, str]]] = {
    "gpt2": (
        "gpt2",
        {"vocab_size": "vocab_size", "n_embd": "hidden_size", "n_layer": "num_layers", "n_head": "num_attention_heads",
         "n_inner": "ffn_hidden_size", "n_positions": "max_position_embeddings", "resid_pdrop": "hidden_dropout_prob",
         "attn_pdrop": "attention_probs_dropout_prob"},
    ),
    "gpt_neox": (
        "gpt-neox",
        {"vocab_size": "vocab_size", "hidden_size": "hidden_size", "num_hidden_layers": "num_layers",
         "num_attention_heads": "num_attention_heads", "intermediate_size": "ffn_hidden_size",
         "max_position_embeddings": "max_position_embeddings", "use_parallel_residual": "use_parallel_residual",
         "hidden_dropout": "hidden_dropout_prob", "attention_dropout": "attention_probs_dropout_prob"},
    ),
}  # fmt: skip


def shape_of(settings: Settings) -> Shape:
    """Return the shape of model.base or, if it is unset, of the run that model.shape names.

    Raises CourseError for a base that is neither a GPT-2 nor a GPT-NeoX.
    """
    folder = settings.model.base
    if folder is None:
        return config.load(PretrainConfig, settings.model.shape).model
    path = folder / "config.json"
    content = read_json(path)
    family = content.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise CourseError(f"{path}: a {family} model cannot take a prefix; allowed: {', '.join(FAMILIES)}")
    architecture, names = FAMILIES[family]
    known = {ours: content[name] for name, ours in names.items() if content.get(name) is not None}
    return config.build(Shape, known | {"architecture": architecture}, where=str(path))


def encoder_tensors(model: Any, width: int) -> Iterator[tuple[int, bool]]:
    """Yield (elements, weight-decayed) for every parameter of the encoder in its order.

    Args:
        model: the model section of a run's settings.
        width: numbers per position of the prefix.
    """
    if model.method == "embedding":
        yield model.length * width, True
        return
    yield model.length * model.input_dim, True
    yield from [(model.input_dim * model.hidden_dim, True), (model.hidden_dim, False)]
    yield from [(model.hidden_dim * width, True), (width, False)]


def prefix_sizes(settings: Settings) -> Sizes:
    """Return the sizes of a run for the memory planner."""
    model, length = settings.model, settings.data.max_length
    shape = replace(shape_of(settings), recompute=model.recompute, attention=model.attention)
    if model.method == "full":
        positions = min(length, shape.max_position_embeddings)
        return gpt_sizes(shape, settings.batch.micro_size, positions, settings.precision.dtype)
    base = list(tensors(shape))
    kept, again = _activations(settings, shape)
    looked_up = shape.vocab_size * shape.hidden_size if shape.architecture == "gpt-neox" else 0
    weights = sum(elements for elements, _ in base) - looked_up
    return Sizes(
        trained=tuple(encoder_tensors(model, 2 * shape.num_layers * shape.hidden_size)),
        frozen=tuple(elements for elements, _ in base),
        activations=kept,
        logits=LOGIT_BYTES * settings.batch.micro_size * length * shape.vocab_size,
        block=again,
        # 4 FLOPs per weight, not 6: a frozen weight has no gradient of its own.
        flops_per_token=4.0 * weights + 12.0 * shape.num_layers * shape.hidden_size * (length + model.length),
        length=length,
    )


def _activations(settings: Settings, shape: Shape) -> tuple[int, int]:
    """Return the bytes that the forward pass keeps, and the additional bytes that one block needs in the backward pass.

    A block keeps the inputs of its norms, the queries, keys and values, and the input of the GELU. The keys and values
    include those of the prefix, copied for each row. Fused attention also keeps its output, its mask and one number per
    row; eager attention keeps its scores. The queries of a GPT-2 are a view that keeps the whole QKV tensor in memory.
    """
    width, neox = BYTES[settings.precision.dtype], shape.architecture == "gpt-neox"
    tokens = settings.batch.micro_size * settings.data.max_length
    columns = settings.model.length + settings.data.max_length
    stream, wide = width * tokens * shape.hidden_size, width * tokens * shape.ffn
    rows = tokens * shape.num_attention_heads
    kept = (1 if shape.use_parallel_residual else 2) * stream + wide
    kept += 2 * stream * columns // settings.data.max_length
    if shape.attention == "eager":
        # The softmax of GPT-NeoX is in fp32.
        core = rows * columns * (width + (4 if neox and width < 4 else 0))
        kept += stream + core
    else:
        core = width * tokens * columns + 4 * rows
        kept += (2 if neox else 4) * stream + core
    # The prefix itself and its gradients.
    prefix = 2 * width * settings.model.length * 2 * shape.num_layers * shape.hidden_size
    if shape.recompute == "full":
        return shape.num_layers * stream + stream + prefix, kept - stream + max(2 * wide, core)
    return shape.num_layers * kept + prefix, max(2 * wide, core)
