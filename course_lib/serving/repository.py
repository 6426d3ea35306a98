"""Triton model repositories for this course's reader (Python backend) or NVIDIA's FasterTransformer backend.

The tensors are those of the fastertransformer_backend GPT-NeoX model, so its clients work unchanged. Its GPT model has
further tensors (context embeddings, prompts in the request), which are optional.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from course_lib.errors import UsageError
from course_lib.files import atomic_folder, require_other
from course_lib.serving import ini, layout
from course_lib.serving.layout import FtConfig

Backend = Literal["python", "fastertransformer"]
MODEL = "fastertransformer"  # the model's name in requests
LOOPBACK = "127.0.0.1"
MAX_BATCH = 1024
QUEUE = 1024  # requests that may wait
FOLDER = "model_checkpoint_path"  # the parameter that contains the path to the weights
MODEL_PY = '''"""Loaded by Triton's Python backend; the model is the course's."""

from course_lib.serving.triton_model import TritonPythonModel  # noqa: F401
'''


@dataclass(frozen=True)
class TritonTensor:
    """A request or response tensor as declared in config.pbtxt; `dims` excludes the batch dimension."""

    name: str
    dtype: str
    dims: tuple[int, ...]
    optional: bool = False
    field: str | None = None  # of TextRequest, and of AskConfig if `course ask` sets it

    @property
    def scalar(self) -> bool:
        """Whether each sequence has one value; clients send [B, 1] and the backend receives [B]."""
        return self.dims == (1,)


INPUTS = (
    TritonTensor("input_ids", "UINT32", (-1,)),
    TritonTensor("start_id", "UINT32", (1,), True, "start_id"),
    TritonTensor("end_id", "UINT32", (1,), True, "end_id"),
    TritonTensor("input_lengths", "UINT32", (1,)),
    TritonTensor("request_output_len", "UINT32", (-1,)),
    TritonTensor("runtime_top_k", "UINT32", (1,), True, "top_k"),
    TritonTensor("runtime_top_p", "FP32", (1,), True, "top_p"),
    TritonTensor("beam_search_diversity_rate", "FP32", (1,), True),
    TritonTensor("temperature", "FP32", (1,), True, "temperature"),
    TritonTensor("len_penalty", "FP32", (1,), True),
    TritonTensor("repetition_penalty", "FP32", (1,), True, "repetition_penalty"),
    TritonTensor("random_seed", "UINT64", (1,), True, "seed"),
    TritonTensor("is_return_log_probs", "BOOL", (1,), True),
    TritonTensor("beam_width", "UINT32", (1,), True, "beam_width"),
    TritonTensor("bad_words_list", "INT32", (2, -1), True),
    TritonTensor("stop_words_list", "INT32", (2, -1), True),
    TritonTensor("prompt_learning_task_name_ids", "UINT32", (1,), True, "task"),
    TritonTensor("top_p_decay", "FP32", (1,), True, "top_p_decay"),
    TritonTensor("top_p_min", "FP32", (1,), True, "top_p_min"),
    TritonTensor("top_p_reset_ids", "UINT32", (1,), True, "top_p_reset_id"),
)
OUTPUTS = (
    TritonTensor("output_ids", "UINT32", (-1, -1)),
    TritonTensor("sequence_length", "UINT32", (-1,)),
    TritonTensor("cum_log_probs", "FP32", (-1,)),
    TritonTensor("output_log_probs", "FP32", (-1, -1)),
)


def write(
    folder: Path,
    target: Path,
    backend: Backend = "python",
    weights: str | None = None,
    instances: int = 1,
    queue: int = QUEUE,
) -> Path:
    """Write a model repository that serves a FasterTransformer folder, and return the model's folder in it.

    Raises CourseError if a file of weights is missing or has the wrong size: NVIDIA's engine would run without it.
    Only the backend python, this course's reader, has instances and a queue. `weights` is the path to the weights as
    the server sees it, for example in a container.
    """
    weights_folder, ranks = layout.find(folder)
    config, _ = ini.read(weights_folder, ranks)
    require_other(folder, target)
    layout.require_whole(weights_folder, config)
    text = pbtxt(config, backend, weights or str(weights_folder.resolve()), instances, queue)
    with atomic_folder(target) as inside:
        version = inside / MODEL / "1"
        version.mkdir(parents=True)
        (inside / MODEL / "config.pbtxt").write_text(text, encoding="utf8")
        # Triton requires a version folder; NVIDIA's backend reads the weights from another folder
        file, content = ("model.py", MODEL_PY) if backend == "python" else (".keep", "")
        (version / file).write_text(content)
    return target / MODEL


def pbtxt(config: FtConfig, backend: Backend, weights: str, instances: int = 1, queue: int = QUEUE) -> str:
    """Return the content of config.pbtxt."""
    ours, parameters = backend == "python", {FOLDER: weights}
    parts = [f'name: "{MODEL}"', f'backend: "{backend}"', f"max_batch_size: {MAX_BATCH}"]
    parts += [f'default_model_filename: "{"model.py" if ours else "weights"}"']
    parts += ["model_transaction_policy { decoupled: false }"]
    if ours:
        # A queue that is handed over as far as possible, and refuses what exceeds the limit
        policy = f"max_queue_size: {queue}, timeout_action: REJECT"
        parts += [f"dynamic_batching {{ default_queue_policy {{ {policy} }} }}"]
    elif config.dtype == "bf16":
        raise UsageError("--backend fastertransformer: weights in bf16 are not allowed; the backend runs them in fp32")
    else:
        model_type = {"gptneox": "GPT-NeoX", "gpt": "GPT"}[config.family]
        parameters |= {"tensor_para_size": str(config.ranks), "pipeline_para_size": "1", "data_type": config.dtype}
        parameters |= {"model_type": model_type, "enable_custom_all_reduce": "0"}
        parameters |= {"int8_mode": "0"} if config.family == "gpt" else {}
    parts += [_tensor("input", tensor, ragged=ours and not tensor.scalar) for tensor in INPUTS]
    parts += [_tensor("output", tensor) for tensor in OUTPUTS]
    parts.append(f"instance_group [ {{ count: {instances}, kind: KIND_CPU }} ]")
    for key, value in parameters.items():
        # The strings of JSON are also those of protobuf's text format
        text = json.dumps(value, ensure_ascii=False)
        parts.append(f'parameters {{ key: "{key}", value: {{ string_value: {text} }} }}')
    return "\n".join(parts) + "\n"


def _tensor(kind: str, tensor: TritonTensor, ragged: bool = False) -> str:
    dims = ", ".join(map(str, tensor.dims))
    fields = [f'name: "{tensor.name}"', f"data_type: TYPE_{tensor.dtype}", f"dims: [ {dims} ]"]
    fields += ["reshape: { shape: [ ] }"] * tensor.scalar + ["optional: true"] * tensor.optional
    # Triton may put requests with different lengths into one batch
    fields += ["allow_ragged_batch: true"] * ragged
    return f"{kind} [ {{ {', '.join(fields)} }} ]"
