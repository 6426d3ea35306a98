"""Triton model repositories: for our reader under Triton's Python backend, and for the original FasterTransformer backend.

The tensors are those of the fastertransformer_backend's GPT-NeoX model, so that its clients need not change. Its GPT model names more
(embeddings of the context, prompts in the request); these are left to the original, which serves without them being listed.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from course_lib.errors import UsageError
from course_lib.files import atomic_folder, require_other
from course_lib.serving import ini, layout
from course_lib.serving.layout import FtConfig

Backend = Literal["python", "fastertransformer"]
MODEL = "fastertransformer"  # the model's name in requests
MAX_BATCH = 1024
FOLDER = "model_checkpoint_path"  # parameter: where the server finds the weights
MODEL_PY = '''"""Loaded by Triton's Python backend; the model is the course's."""

from course_lib.serving.triton_model import TritonPythonModel  # noqa: F401
'''


@dataclass(frozen=True)
class Tensor:
    """A tensor of a request or answer, as config.pbtxt says it; `dims` are without the batch."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    optional: bool = False

    @property
    def scalar(self) -> bool:
        """One number a row: sent as [B, 1], seen by the backend as [B]."""
        return self.dims == (1,)


INPUTS = (
    Tensor("input_ids", "UINT32", (-1,)),
    Tensor("start_id", "UINT32", (1,), True),
    Tensor("end_id", "UINT32", (1,), True),
    Tensor("input_lengths", "UINT32", (1,)),
    Tensor("request_output_len", "UINT32", (-1,)),
    Tensor("runtime_top_k", "UINT32", (1,), True),
    Tensor("runtime_top_p", "FP32", (1,), True),
    Tensor("beam_search_diversity_rate", "FP32", (1,), True),
    Tensor("temperature", "FP32", (1,), True),
    Tensor("len_penalty", "FP32", (1,), True),
    Tensor("repetition_penalty", "FP32", (1,), True),
    Tensor("random_seed", "UINT64", (1,), True),
    Tensor("is_return_log_probs", "BOOL", (1,), True),
    Tensor("beam_width", "UINT32", (1,), True),
    Tensor("bad_words_list", "INT32", (2, -1), True),
    Tensor("stop_words_list", "INT32", (2, -1), True),
    Tensor("prompt_learning_task_name_ids", "UINT32", (1,), True),
    Tensor("top_p_decay", "FP32", (1,), True),
    Tensor("top_p_min", "FP32", (1,), True),
    Tensor("top_p_reset_ids", "UINT32", (1,), True),
)
OUTPUTS = (
    Tensor("output_ids", "UINT32", (-1, -1)),
    Tensor("sequence_length", "UINT32", (-1,)),
    Tensor("cum_log_probs", "FP32", (-1,)),
    Tensor("output_log_probs", "FP32", (-1, -1)),
)


def write(folder: Path, target: Path, backend: Backend = "python", weights: str | None = None) -> Path:
    """Writes a repository that serves `folder`, and returns the model's folder in it.

    `weights` is the folder's path as the server will see it (in a container), else where it is now. Raises CourseError for a folder that
    is not of our format, and UsageError for a data type that the original backend does not read as what it is, or a `target` inside `folder`.
    """
    place, ranks = layout.find(folder)
    config, _ = ini.read(place, ranks)
    require_other(folder, target)
    text = pbtxt(config, backend, weights or str(place.resolve()))
    with atomic_folder(target) as inside:
        version = inside / MODEL / "1"
        version.mkdir(parents=True)
        (inside / MODEL / "config.pbtxt").write_text(text)
        if backend == "python":
            (version / "model.py").write_text(MODEL_PY)
        else:
            (version / ".keep").touch()  # Triton wants a version, the original reads its weights elsewhere
        (inside / "manifest.json").write_text("{}\n")
    return target / MODEL


def pbtxt(config: FtConfig, backend: Backend, weights: str) -> str:
    """config.pbtxt of the model."""
    ours = backend == "python"
    parts = [f'name: "{MODEL}"', f'backend: "{backend}"', f"max_batch_size: {MAX_BATCH}"]
    parts.append(f'default_model_filename: "{"model.py" if ours else "weights"}"')
    parts.append("model_transaction_policy { decoupled: false }")
    if ours:
        parts.append("dynamic_batching { }")
    parts += [_tensor("input", tensor, ragged=ours and not tensor.scalar) for tensor in INPUTS]
    parts += [_tensor("output", tensor) for tensor in OUTPUTS]
    parts.append("instance_group [ { count: 1, kind: KIND_CPU } ]")
    parameters = {FOLDER: weights} if ours else _original(config, weights)
    parts += [
        f'parameters {{ key: "{key}", value: {{ string_value: {_quoted(value)} }} }}'
        for key, value in parameters.items()
    ]
    return "\n".join(parts) + "\n"


def _original(config: FtConfig, weights: str) -> dict[str, str]:
    """Parameters of the FasterTransformer backend."""
    if config.dtype == "bf16":
        raise UsageError(
            "--backend fastertransformer: weights in bf16 are not allowed: for data_type the backend knows fp16, and runs everything else in fp32"
        )
    return {
        "tensor_para_size": str(config.ranks),
        "pipeline_para_size": "1",
        "data_type": config.dtype,  # anything but fp16 means fp32 there
        "model_type": {"gptneox": "GPT-NeoX", "gpt": "GPT"}[config.family],
        FOLDER: weights,
        "enable_custom_all_reduce": "0",
    } | ({"int8_mode": "0"} if config.family == "gpt" else {})


def _tensor(kind: str, tensor: Tensor, ragged: bool = False) -> str:
    lines = [
        f'name: "{tensor.name}"',
        f"data_type: TYPE_{tensor.dtype}",
        f"dims: [ {', '.join(map(str, tensor.dims))} ]",
    ]
    lines += ["reshape: { shape: [ ] }"] * tensor.scalar + ["optional: true"] * tensor.optional
    lines += ["allow_ragged_batch: true"] * ragged  # requests of different lengths may come together
    return f"{kind} [ {{ {', '.join(lines)} }} ]"


def _quoted(value: str) -> str:
    """A string of the protobuf text format."""
    return (
        '"'
        + "".join(
            f"\\{byte:03o}" if byte < 32 or byte > 126 or chr(byte) in '"\\' else chr(byte) for byte in value.encode()
        )
        + '"'
    )
