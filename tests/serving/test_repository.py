from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from course_lib.command_line.serving import serve
from course_lib.errors import CourseError, UsageError
from course_lib.files import FILE_LIST
from course_lib.serving import ini, layout, repository, server

from tests.serving import tiny

text_format = pytest.importorskip("google.protobuf.text_format")
pytest.importorskip("grpc")
schema = pytest.importorskip("tritonclient.grpc.model_config_pb2")

# The GPT-NeoX model of fastertransformer_backend: name, type, dims, whether a row's single number is unwrapped, whether it may be left out
INPUTS = """
input_ids UINT32 -1 . .
start_id UINT32 1 reshape optional
end_id UINT32 1 reshape optional
input_lengths UINT32 1 reshape .
request_output_len UINT32 -1 . .
runtime_top_k UINT32 1 reshape optional
runtime_top_p FP32 1 reshape optional
beam_search_diversity_rate FP32 1 reshape optional
temperature FP32 1 reshape optional
len_penalty FP32 1 reshape optional
repetition_penalty FP32 1 reshape optional
random_seed UINT64 1 reshape optional
is_return_log_probs BOOL 1 reshape optional
beam_width UINT32 1 reshape optional
bad_words_list INT32 2,-1 . optional
stop_words_list INT32 2,-1 . optional
prompt_learning_task_name_ids UINT32 1 reshape optional
top_p_decay FP32 1 reshape optional
top_p_min FP32 1 reshape optional
top_p_reset_ids UINT32 1 reshape optional
"""
OUTPUTS = """
output_ids UINT32 -1,-1 . .
sequence_length UINT32 -1 . .
cum_log_probs FP32 -1 . .
output_log_probs FP32 -1,-1 . .
"""


def parsed(text: str) -> Any:
    return text_format.Parse(text, schema.ModelConfig())


def described(tensors: Any, **missing: bool) -> list[str]:
    return [
        f"{tensor.name} {schema.DataType.Name(tensor.data_type)[5:]} {','.join(map(str, tensor.dims))} "
        f"{'reshape' if tensor.HasField('reshape') and not tensor.reshape.shape else '.'} {'optional' if getattr(tensor, 'optional', False) else '.'}"
        for tensor in tensors
    ]


@pytest.mark.parametrize("backend", ["python", "fastertransformer"])
def test_the_tensors_are_those_of_the_original(folder: Path, tmp_path: Path, backend: repository.Backend) -> None:
    model = repository.write(folder, tmp_path / "models", backend)
    found = parsed((model / "config.pbtxt").read_text())
    assert model == tmp_path / "models" / "fastertransformer" and found.name == model.name
    assert described(found.input) == INPUTS.split("\n")[1:-1] and described(found.output) == OUTPUTS.split("\n")[1:-1]
    assert (found.backend, found.max_batch_size, found.model_transaction_policy.decoupled) == (backend, 1024, False)
    assert [(group.count, group.kind) for group in found.instance_group] == [(1, schema.ModelInstanceGroup.KIND_CPU)]
    weights = found.parameters["model_checkpoint_path"].string_value
    assert weights == str(folder / "1-gpu")
    assert (model / "1" / "model.py").exists() is (backend == "python")
    # requests of different lengths may come together at our backend
    ragged = ["input_ids", "request_output_len", "bad_words_list", "stop_words_list"] if backend == "python" else []
    assert [tensor.name for tensor in found.input if tensor.allow_ragged_batch] == ragged


@pytest.mark.parametrize(("family", "kind"), [("gptneox", "GPT-NeoX"), ("gpt", "GPT")])
def test_the_original_is_told_what_it_needs(tmp_path: Path, family: layout.Family, kind: str) -> None:
    folder = tiny.write(tmp_path / "tiny", family)
    config, _ = ini.read(folder / "1-gpu", 1)
    found = parsed(repository.pbtxt(replace(config, ranks=4, dtype="fp16"), "fastertransformer", '/a "b"\\é'))
    values = {key: value.string_value for key, value in found.parameters.items()}
    assert values["model_checkpoint_path"] == '/a "b"\\é'
    assert (values["tensor_para_size"], values["pipeline_para_size"]) == ("4", "1")
    assert (values["data_type"], values["model_type"]) == ("fp16", kind)
    with pytest.raises(UsageError, match="bf16"):
        repository.pbtxt(replace(config, dtype="bf16"), "fastertransformer", "/weights")


def test_serve_writes_a_repository_over_its_own_only(folder: Path, tmp_path: Path) -> None:
    for _ in range(2):
        assert "→" in str(serve(folder, target=tmp_path / "models", weights="/weights/1-gpu"))
    config = parsed((tmp_path / "models" / "fastertransformer" / "config.pbtxt").read_text())
    assert config.parameters["model_checkpoint_path"].string_value == "/weights/1-gpu"
    for target in (folder, folder / "models"):
        with pytest.raises(UsageError, match="input"):
            serve(folder, target=target)
    with pytest.raises(CourseError, match="expected one FasterTransformer folder N-gpu, found: none"):
        serve(tmp_path / "models", target=tmp_path / "other")


def test_a_repository_holds_what_triton_reads_and_the_mark_of_the_course(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "models"
    model = repository.write(folder, target)
    files = {path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()}
    assert files == {FILE_LIST, "fastertransformer/config.pbtxt", "fastertransformer/1/model.py"}
    # Repositories that earlier versions wrote have the same line, so they are served as long as it is right.
    line = "from course_lib.serving.triton_model import TritonPythonModel  # noqa: F401"
    assert line in (model / "1/model.py").read_text().splitlines()


def test_without_the_wheel_the_container_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with (
        pytest.raises(CourseError, match="Triton is not installed: pip install .* or the container nvcr.io"),
        server.running(folder),
    ):
        pass


def test_limits_reach_triton(folder: Path, tmp_path: Path) -> None:
    model = repository.write(folder, tmp_path / "models", instances=3, queue=7)
    found = parsed((model / "config.pbtxt").read_text())
    policy = found.dynamic_batching.default_queue_policy
    assert (found.instance_group[0].count, policy.max_queue_size, policy.timeout_action) == (3, 7, policy.REJECT)


@pytest.mark.parametrize("backend", ["python", "fastertransformer"])
@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        ("model.wte.bin", 7_679, "7,679 bytes, expected 7,680 \\(\\[60, 32\\] of fp32\\)"),
        ("model.layers.1.attention.dense.weight.0.bin", 0, "0 bytes, expected 4,096"),
        ("model.prefix_prompt.smile.weight.0.bin", None, "no such file"),
        ("model.lm_head.weight.bin", 7_684, "7,684 bytes, expected 7,680"),
    ],
)
def test_weights_that_are_not_whole_are_found_before_serving(
    tmp_path: Path, backend: repository.Backend, name: str, size: int | None, words: str
) -> None:
    damaged = tiny.write(tmp_path / "damaged")
    file = damaged / "1-gpu" / name
    content = file.read_bytes()
    file.unlink()
    if size is not None:
        file.write_bytes((content + bytes(8))[:size])
    for attempt in (lambda: repository.write(damaged, tmp_path / "models", backend), lambda: serving(damaged)):
        with pytest.raises(CourseError, match=f"^{file}: {words}"):
            attempt()
    assert not (tmp_path / "models").exists()
    file.write_bytes(content)
    assert repository.write(damaged, tmp_path / "models", backend).is_dir()


def serving(folder: Path) -> None:
    """Begin to serve; the weights are looked at before Triton starts."""
    with server.running(folder):
        raise AssertionError("it serves")
