"""Triton model repositories for this course's reader (Python backend) or NVIDIA's FasterTransformer backend.

A repository is a folder that Triton reads at its start: REPOSITORY/fastertransformer/config.pbtxt declares the tensors
of request.py and names the weights' folder; REPOSITORY/fastertransformer/1/model.py is what the Python backend imports.
The file that `files.atomic_folder` adds says that the course wrote the folder, so that it may be replaced.
"""

import json
from pathlib import Path
from typing import Literal

from course_lib.errors import UsageError
from course_lib.files import atomic_folder, require_other
from course_lib.serving import ini, layout
from course_lib.serving.layout import FtConfig
from course_lib.serving.request import INPUTS, MODEL, OUTPUTS, TritonTensor

Backend = Literal["python", "fastertransformer"]
MAX_BATCH = 1024
QUEUE = 1024  # requests that may wait
WEIGHTS_KEY = "model_checkpoint_path"  # the parameter that contains the path to the weights
# Repositories of earlier versions import the class by this name, too.
MODEL_PY = '''"""Loaded by Triton's Python backend; the model is the course's."""

from course_lib.serving.triton_model import TritonPythonModel  # noqa: F401
'''


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
    ours, parameters = backend == "python", {WEIGHTS_KEY: weights}
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
