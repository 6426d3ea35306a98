"""The folder of `course ft export`, byte for byte; what is refused, and what is left when it fails."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from course_lib import cli
from course_lib.errors import CourseError, UsageError
from course_lib.models.frozen_base import digest
from course_lib.prefix.files import Prefix
from course_lib.prefix.files import write as write_prefix
from course_lib.serving import layout
from course_lib.serving.check import inspect
from course_lib.serving.export import export, named
from course_lib.serving.ft_source import Corrections
from safetensors.torch import load_file, save_file

from tests.serving import models
from tests.serving.models import FAMILIES, as_task, build, expected_files, expected_prefix, save

AS_UPSTREAM = Corrections(False, False, False)
NEOX = """[gptneox]
model_name = x
head_num = 4
size_per_head = 4
inter_size = 40
num_layer = 2
rotary_embedding = 2
vocab_size = 43
start_id = 2
end_id = 3
use_gptj_residual = {residual}
weight_data_type = {dtype}

"""
GPT2 = """[gpt]
model_name = x
head_num = 4
size_per_head = 4
inter_size = 64
max_pos_seq_len = 24
num_layer = 2
vocab_size = 43
start_id = 2
end_id = 3
weight_data_type = {dtype}
tensor_para_size = {ranks}

"""


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Path]:
    return {family: save(build(family), tmp_path / "source" / family) for family in FAMILIES}


@pytest.mark.parametrize(("dtype", "ranks"), [("fp32", 1), ("fp16", 2), ("fp32", 4)])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_byte_as_the_originals_converters(tmp_path: Path, sources, family: str, dtype, ranks: int):
    prefixes = models.prefixes()
    tasks = [as_task(*each) for each in prefixes.items()]
    found = export(sources[family], tmp_path / "ft", ranks, dtype, tasks, AS_UPSTREAM, "x")
    assert found.folder == tmp_path / "ft" / f"{ranks}-gpu"
    wanted = expected_files(build(family), family, ranks, dtype, divide=family != "gpt2")
    for name, values in prefixes.items():
        parts = expected_prefix(values, ranks, dtype)
        wanted |= {f"model.prefix_prompt.{name}.weight.{rank}.bin": part for rank, part in enumerate(parts)}
    text = (GPT2 if family == "gpt2" else NEOX).format(residual=int(family == "parallel"), dtype=dtype, ranks=ranks)
    text_of_tasks = "num_tasks = 2\nprompt_learning_type = 2\n\n[task_0]\ntask_name = smile\nprompt_length = 3\n\n[task_1]\ntask_name = plain\nprompt_length = 5\n\n"
    wanted["config.ini"] = (text[:-1] + text_of_tasks).encode()
    assert {path.name: path.read_bytes() for path in found.folder.iterdir()} == wanted
    # the bytes on each rank, which the figure shows
    weights = {name: len(content) for name, content in wanted.items() if name.endswith(".bin")}
    split = sum(size for name, size in weights.items() if name.endswith(f".{ranks - 1}.bin"))
    shared = sum(size for name, size in weights.items() if not re.search(r"\.\d+\.bin$", name))
    assert layout.rank_bytes(found.config) == (shared, split)


@pytest.mark.parametrize("family", FAMILIES)
def test_corrected_unless_asked_otherwise(tmp_path: Path, sources, family: str):
    found = export(sources[family], tmp_path / "ft", 2, name="x")
    files = {path.name: path.read_bytes() for path in found.folder.iterdir()}
    config = files.pop("config.ini").decode()
    assert files == expected_files(build(family), family, 2, "fp32")
    assert config == (
        GPT2.format(dtype="fp32", ranks=2)[:-1] + "layernorm_eps = 1e-05\n\n"
        if family == "gpt2"
        else NEOX.format(dtype="fp32", residual=int(family == "parallel"))
    )
    said = {"sequential": "are not divided by 2", "gpt2": "layernorm_eps = 1e-05"}
    assert (said[family] in found.summary()) if family in said else not found.corrected
    assert (tmp_path / "ft" / "conversion.json").is_file()


def test_a_folder_of_an_old_version_gives_the_same_files(tmp_path: Path, sources):
    """Sharded .bin files, the old name of the output layer, constants among the weights, and an old configuration."""
    folder, model = tmp_path / "old", build("parallel")
    model.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    weights = {name.replace("lm_head", "embed_out"): tensor for name, tensor in model.state_dict().items()}
    weights |= {f"gpt_neox.layers.0.attention.{name}": torch.ones(1) for name in ("bias", "rotary_emb.inv_freq")}
    config = json.loads((folder / "config.json").read_text())
    del config["rope_parameters"]
    (folder / "config.json").write_text(json.dumps(config | {"rotary_pct": 0.5, "rotary_emb_base": 10000}))
    index: dict[str, str] = {}
    for part, names in (("a", list(weights)[:9]), ("b", list(weights)[9:])):
        torch.save({name: weights[name].clone() for name in names}, folder / f"pytorch_model-{part}.bin")
        index |= dict.fromkeys(names, f"pytorch_model-{part}.bin")
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
    exported = [export(source, tmp_path / f"{source.name}-ft", 2, name="x") for source in (folder, sources["parallel"])]
    old, new = ({path.name: path.read_bytes() for path in each.folder.iterdir()} for each in exported)
    assert old == new


def test_models_without_biases_and_with_shared_embeddings(tmp_path: Path):
    model = build("parallel", attention_bias=False, tie_word_embeddings=True)
    found = export(save(model, tmp_path / "model"), tmp_path / "ft", 2).folder
    assert not any((found / "model.layers.0.attention.query_key_value.bias.1.bin").read_bytes())
    assert (found / "model.wte.bin").read_bytes() == (found / "model.lm_head.weight.bin").read_bytes()
    assert not inspect(found).findings
    apart = build("gpt2", tie_word_embeddings=False)
    found = export(save(apart, tmp_path / "apart"), tmp_path / "ft2").folder
    assert (found / "model.lm_head.weight.bin").read_bytes() == apart.lm_head.weight.detach().numpy().tobytes()


def test_a_gpt2_with_an_inner_width_and_activation_of_its_own(tmp_path: Path):
    save(build("gpt2", n_inner=40, activation_function="relu"), tmp_path / "model")
    text = (export(tmp_path / "model", tmp_path / "ft").folder / "config.ini").read_text()
    assert "inter_size = 40\n" in text and "activation_type = Relu\n" in text


@pytest.mark.parametrize(
    "family, changes, message",
    [
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ("parallel", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, "rope_type"),
        ("parallel", {"eos_token_id": None}, "eos_token_id is not set"),
    ],
)
def test_what_the_engine_cannot_do_is_refused(tmp_path: Path, family: str, changes, message: str):
    save(build(family, **changes), tmp_path / "model")
    with pytest.raises(CourseError, match=message):
        export(tmp_path / "model", tmp_path / "ft")
    assert not (tmp_path / "ft").exists()


def test_what_the_engine_does_otherwise_is_said(tmp_path: Path):
    rope = {"rope_type": "default", "rope_theta": 5e4, "partial_rotary_factor": 1.0}
    model = build("parallel", hidden_act="relu", layer_norm_eps=1e-6, rope_parameters=rope)
    notes = export(save(model, tmp_path / "model"), tmp_path / "ft").notes
    assert {note.split(" is ")[0] for note in notes} >= {"hidden_act", "layer_norm_eps", "rope_theta"}


def test_other_models_and_uneven_heads_are_refused(tmp_path: Path, sources):
    with pytest.raises(UsageError, match=r"--tensor-parallel 3: 4 \(heads\) is not divisible by 3"):
        export(sources["gpt2"], tmp_path / "ft", 3)
    config = json.loads((sources["gpt2"] / "config.json").read_text())
    (sources["gpt2"] / "config.json").write_text(json.dumps(config | {"model_type": "opt"}))
    with pytest.raises(CourseError, match="opt"):
        export(sources["gpt2"], tmp_path / "ft")


@pytest.mark.parametrize(
    "damage, message",
    [
        (lambda weights: weights.pop("gpt_neox.layers.1.mlp.dense_4h_to_h.bias"), "lacks layers.1.mlp"),
        (lambda weights: weights.update({"embed_out.weight": torch.ones(43, 16, dtype=torch.int8)}), "stored as int8"),
        (
            lambda weights: weights["embed_out.weight"].mul_(1e6),
            "embed_out.weight has values .* above 65504 in float16",
        ),
    ],
)
def test_weights_that_are_not_the_configurations(tmp_path: Path, sources, damage, message: str):
    file = sources["sequential"] / "model.safetensors"
    weights = load_file(file)
    damage(weights)
    save_file(weights, file)
    with pytest.raises(CourseError, match=message):
        export(sources["sequential"], tmp_path / "ft", dtype="fp16")
    assert not (tmp_path / "ft").exists() and not list(tmp_path.glob(".ft*"))


def test_a_bias_sum_above_the_largest_fp16(tmp_path: Path):
    model = build("parallel")
    for linear in (model.gpt_neox.layers[1].attention.dense, model.gpt_neox.layers[1].mlp.dense_4h_to_h):
        linear.bias.data.fill_(40_000)
    with pytest.raises(CourseError, match=r"^[^\n]*layers.1.mlp.attention.bias.sum has values .* above 65504[^\n]*$"):
        export(save(model, tmp_path / "model"), tmp_path / "ft", dtype="fp16")


@pytest.mark.parametrize("name", ["", "a/b", "a;b"])
def test_names_that_files_and_config_ini_cannot_hold(tmp_path: Path, sources, name: str):
    with pytest.raises(UsageError, match="--prefix"):
        export(sources["gpt2"], tmp_path / "ft", prefixes=[as_task(name, models.prefixes()["smile"])])


def test_tasks_collide_or_do_not_fit(tmp_path: Path, sources):
    values = models.prefixes()["smile"]
    twice = [as_task("smile_a", values), as_task("smile_a", values)]
    with pytest.raises(UsageError, match="smile_a: occurs twice"):
        export(sources["gpt2"], tmp_path / "ft", prefixes=twice)
    with pytest.raises(CourseError, match=r"prefix a: 60 numbers per position, the model takes 64"):
        export(sources["gpt2"], tmp_path / "ft", prefixes=[as_task("a", values[:, :60])])


def test_prefix_files_keep_their_names_and_their_base(tmp_path: Path, sources):
    values, base = models.prefixes()["smile"], sources["sequential"]
    torch.save(values, tmp_path / "two_words.task0.weight")
    assert named(str(tmp_path / "two_words.task0.weight")).task == "two_words"
    assert named(f"other={tmp_path / 'two_words.task0.weight'}").task == "other"
    assert (named("none=").task, len(named("none="))) == ("none", 0)
    odd = tmp_path / "a=b"
    write_prefix(Prefix(values, "smile_end", digest(base)), odd)
    assert named(str(odd)).task == "smile_end"
    export(base, tmp_path / "ft", prefixes=[named(str(odd))])
    assert json.loads((tmp_path / "ft" / "conversion.json").read_text())["sha256_of_weights"] == digest(base)
    assert str(tmp_path) not in (tmp_path / "ft" / "conversion.json").read_text()
    save(build("sequential", seed=1), tmp_path / "retrained")
    with pytest.raises(CourseError, match="smile_end: trained on the weights"):
        export(tmp_path / "retrained", tmp_path / "ft", prefixes=[named(str(odd))])


def test_the_verbs(tmp_path: Path, sources, capsys: pytest.CaptureFixture[str]):
    torch.save(models.prefixes()["smile"], tmp_path / "smile.pt")
    export_verb = ["ft", "export", str(sources["gpt2"]), "-o", str(tmp_path / "ft")]
    assert cli._main([*export_verb, "--tensor-parallel", "2", "--dtype", "fp16", "--prefix", str(tmp_path / "smile.pt"), "--prefix", "none="]) == 0  # fmt: skip
    said = capsys.readouterr().out
    assert "in fp16 for 2 ranks, tasks smile, none" in said and "corrected: config.ini says layernorm_eps" in said
    assert "note: FasterTransformer's GPT engine loads prefixes and does not use them" in said
    assert cli._main(["ft", "inspect", str(tmp_path / "ft"), "--values"]) == 0
    assert "2-gpu: no problems in 43 files" in capsys.readouterr().out
    next(tmp_path.glob("ft/2-gpu/*h_to_4h.bias.1.bin")).unlink()
    assert cli._main(["ft", "inspect", str(tmp_path / "ft"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [finding["kind"] for finding in found["findings"]] == ["missing"] and found["config"]["ranks"] == 2
    assert cli._main([*export_verb, "--upstream-ini"]) == 0 and "corrected" not in capsys.readouterr().out
    assert cli._main([*export_verb, "--tensor-parallel", "3"]) == 2


PEAK = """
import sys
from pathlib import Path
from course_lib.serving.export import export, named

def peak():
    return next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))

export(Path(sys.argv[1]), Path(sys.argv[3]) / "small")
before = peak()
export(Path(sys.argv[2]), Path(sys.argv[3]) / "exported", 2, "fp16")
print(peak() - before)
"""


@pytest.mark.rehearse
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="only Linux tells a process its peak of memory")
def test_memory_does_not_grow_with_the_model(tmp_path: Path, sources):
    with torch.device("meta"):
        model = build("parallel", hidden_size=512, intermediate_size=2048, num_hidden_layers=30)
    model = model.half().to_empty(device="cpu")
    for weight in model.parameters():
        weight.data.fill_(0.5)
    # The peak includes one mapped file, whose pages the system can drop: small files leave what the export itself holds
    model.save_pretrained(tmp_path / "large", max_shard_size="10MB")
    assert sum(file.stat().st_size for file in tmp_path.glob("large/*.safetensors")) > 180 * 2**20
    command = [sys.executable, "-c", PEAK, sources["parallel"], tmp_path / "large", tmp_path]
    assert int(subprocess.run(command, check=True, capture_output=True, text=True).stdout) < 24  # MiB


@pytest.mark.parametrize("name", ["a\nhead_num = 1", "a\rb", "a\n", "a\u2028b", "\x00"])
def test_a_name_of_several_lines_is_refused(sources: dict[str, Path], tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="^--name .*would break the line of config.ini"):
        export(sources["gpt2"], tmp_path / "ft", name=name)
    assert not (tmp_path / "ft").exists()
    assert export(sources["gpt2"], tmp_path / "ft", name="日本語　の 名前").config.model_name == "日本語　の 名前"


@pytest.mark.parametrize("layers", [10**9, 100])
def test_layers_that_the_weights_cannot_have_are_refused_at_once(
    sources: dict[str, Path], tmp_path: Path, layers: int
) -> None:
    for index, source in enumerate(sources.values()):
        folder = shutil.copytree(source, tmp_path / str(index))
        config = json.loads((folder / "config.json").read_text())
        key = "n_layer" if "n_layer" in config else "num_hidden_layers"
        (folder / "config.json").write_text(json.dumps(config | {key: layers}))
        with pytest.raises(CourseError, match=f"{folder}: config.json says {layers} layers, the weights are "):
            export(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()
