"""The way back: a FasterTransformer folder as a Hugging Face folder, bit for bit, and the same files again."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from course_lib import cli
from course_lib.checkpoints import model_folder, weight_files
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.errors import CourseError
from course_lib.models.frozen_base import digest
from course_lib.prefix import files as prefix_files
from course_lib.serving.export import export
from course_lib.serving.ft_import import import_folder
from course_lib.serving.ft_settings import Given
from course_lib.serving.layout import CONVERSION

from tests.serving import models, tiny
from tests.serving.models import FAMILIES, as_task, build, expected_files, expected_prefix, save
from tests.serving.test_export import AS_UPSTREAM, GPT2, NEOX

TASKS = [as_task(*task) for task in [*models.prefixes().items(), ("none", None)]]
INI_TASKS = "num_tasks = 3\nprompt_learning_type = 2\n\n" + "".join(
    f"[task_{index}]\ntask_name = {name}\nprompt_length = {length}\n\n"
    for index, (name, length) in enumerate([("smile", 3), ("plain", 5), ("none", 0)])
)


def stored(folder: Path) -> dict[str, torch.Tensor]:
    return {name: weight.contiguous().clone() for name, weight in weight_files.by_name(folder).items()}


def same(folder: Path, model) -> bool:
    """Whether a folder has the tensors of a model, names, dtypes and bits."""
    found, wanted = stored(folder), dict(model.named_parameters())
    wanted = {name.replace("lm_head", "embed_out") if "gpt_neox" in str(wanted.keys()) else name: value for name, value in wanted.items()}  # fmt: skip
    return found.keys() == wanted.keys() and all(
        found[name].dtype == value.dtype and torch.equal(found[name], value) for name, value in wanted.items()
    )


def by_hand(folder: Path, family: str, ranks: int, dtype: str) -> Path:
    """The files of FasterTransformer's own converter and three tasks, none of our export: DIR/N-gpu."""
    weights_folder = folder / f"{ranks}-gpu"
    weights_folder.mkdir(parents=True)
    files = expected_files(build(family), family, ranks, dtype, divide=family != "gpt2")
    for name, values in models.prefixes().items():
        parts = expected_prefix(values, ranks, dtype)
        files |= {f"model.prefix_prompt.{name}.weight.{rank}.bin": part for rank, part in enumerate(parts)}
    text = (GPT2 if family == "gpt2" else NEOX).format(residual=int(family == "parallel"), dtype=dtype, ranks=ranks)
    files["config.ini"] = (text[:-1] + INI_TASKS).encode()
    for name, content in files.items():
        (weights_folder / name).write_bytes(content)
    return weights_folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(("dtype", "ranks"), [("fp32", 1), ("fp16", 2), ("bf16", 4)])
@pytest.mark.parametrize("family", FAMILIES)
def test_export_and_import_give_the_same_tensors(tmp_path: Path, family: str, dtype, ranks: int):
    source = save(build(family), tmp_path / "source")
    export(source, tmp_path / "ft", ranks, dtype, TASKS)
    report = import_folder(tmp_path / "ft", tmp_path / "back")
    assert same(tmp_path / "back", build(family).to(TORCH[dtype]))
    if dtype == "fp32":
        assert digest(tmp_path / "back") == digest(source)
        assert not report.settings or all(found.source != "default" for found in report.settings.values())
    for task in TASKS[:2]:
        prefix = prefix_files.read(tmp_path / "back" / "prefixes" / f"{task.task}.safetensors")
        assert prefix.task == task.task and prefix.base == digest(tmp_path / "back")
        assert torch.equal(prefix.values, task.values.to(TORCH[dtype]).float())
    record = json.loads((tmp_path / "back" / CONVERSION).read_text())
    assert record["tasks"][2] == {"name": "none", "length": 0}
    assert str(tmp_path) not in (tmp_path / "back" / CONVERSION).read_text()


@pytest.mark.parametrize(("dtype", "ranks"), [("fp32", 1), ("fp16", 2)])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_originals_files_become_the_model_and_the_same_files_again(
    tmp_path: Path, family: str, dtype: str, ranks: int
):
    weights_folder = by_hand(tmp_path / "ft", family, ranks, dtype)
    given = Given(biases_divided_by=ranks if family == "sequential" else None)
    report = import_folder(weights_folder, tmp_path / "back", given=given)
    assert same(tmp_path / "back", build(family).to(TORCH[dtype]))  # type: ignore[index]
    assert any("no tokenizer/" in note for note in report.notes)
    again = export(tmp_path / "back", tmp_path / "again", ranks, dtype, TASKS, AS_UPSTREAM, "x")  # type: ignore[arg-type]
    assert contents(again.folder) == contents(weights_folder)


@pytest.mark.parametrize(("family", "untied"), [("parallel", False), ("gpt2", True)])
def test_an_output_layer_is_the_embedding_or_is_not(tmp_path: Path, family: str, untied: bool):
    model = build(family, tie_word_embeddings=not untied)
    weights_folder = export(save(model, tmp_path / "source"), tmp_path / "ft", 2).folder
    import_folder(weights_folder, tmp_path / "back")
    assert ("lm_head.weight" in stored(tmp_path / "back") or "embed_out.weight" in stored(tmp_path / "back")) == untied
    assert same(tmp_path / "back", model)
    assert contents(export(tmp_path / "back", tmp_path / "again", 2, name="source").folder) == contents(weights_folder)


def test_biases_of_several_ranks_are_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    weights_folder = by_hand(tmp_path / "ft", "sequential", 2, "fp32")
    arguments = ["ft", "import", str(weights_folder), "-o", str(tmp_path / "back")]
    assert cli._main(arguments) == 2
    assert "--biases-divided-by: not given" in capsys.readouterr().err and not (tmp_path / "back").exists()
    assert cli._main([*arguments, "--biases-divided-by", "4"]) == 2
    assert "--biases-divided-by 4: allowed: 1 or 2" in capsys.readouterr().err
    name = "gpt_neox.layers.1.mlp.dense_4h_to_h.bias"
    for divided in (1, 2):
        assert cli._main([*arguments, "--biases-divided-by", str(divided)]) == 0
        assert torch.equal(stored(tmp_path / "back")[name], build("sequential").state_dict()[name] * divided / 2)


def test_a_divisor_that_is_no_power_of_two(tmp_path: Path):
    model = build("parallel", hidden_size=24, num_attention_heads=3, intermediate_size=48)
    weights_folder = export(save(model, tmp_path / "source"), tmp_path / "ft", 3).folder
    report = import_folder(weights_folder, tmp_path / "back")
    assert any("multiplied by 3, no power of two" in note for note in report.notes)
    found, wanted = stored(tmp_path / "back"), model.state_dict()
    name = "gpt_neox.layers.0.attention.dense.bias"
    assert torch.allclose(found.pop(name), wanted[name], rtol=1.2e-7, atol=0)
    assert all(torch.equal(value, wanted[key.replace("embed_out", "lm_head")]) for key, value in found.items() if "dense" not in key)  # fmt: skip
    assert contents(export(tmp_path / "back", tmp_path / "again", 3, name="source").folder) == contents(weights_folder)


def test_where_the_settings_come_from(tmp_path: Path):
    weights_folder = by_hand(tmp_path / "ft", "parallel", 1, "fp32")
    report = import_folder(weights_folder, tmp_path / "back")
    assert {found.source for found in report.settings.values()} == {"default"} and "rope_theta" in report.summary()
    given = Given("relu", 1e-3, 500.0, 77)
    report = import_folder(weights_folder, tmp_path / "back", given=given)
    config = model_folder.read_config(tmp_path / "back")
    assert (config.hidden_act, config.layer_norm_eps, config.max_position_embeddings) == ("relu", 1e-3, 77)
    assert config.rope_parameters["rope_theta"] == 500.0 and config.rope_parameters["partial_rotary_factor"] == 0.5
    assert {found.source for found in report.settings.values()} == {"option"} and "assumed" not in report.summary()
    assert json.loads((tmp_path / "back" / "config.json").read_text())["rotary_pct"] == 0.5
    (weights_folder.parent / CONVERSION).write_text('{"not_in_the_format": {"hidden_act": "gelu_new"}}')
    report = import_folder(weights_folder, tmp_path / "back", given=Given(layer_norm_eps=1e-3))
    assert report.settings["hidden_act"].source == "conversion.json"


def test_the_settings_of_a_gpt2_are_those_of_its_ini(tmp_path: Path):
    weights_folder = by_hand(tmp_path / "ft", "gpt2", 1, "fp32")
    ini = (weights_folder / "config.ini").read_text()
    (weights_folder / "config.ini").write_text(
        ini.replace("num_tasks", "layernorm_eps = 1e-4\nactivation_type = Relu\nnum_tasks")
    )
    report = import_folder(weights_folder, tmp_path / "back")
    config = model_folder.read_config(tmp_path / "back")
    assert (config.activation_function, config.layer_norm_epsilon) == ("relu", 1e-4)
    assert {found.source for found in report.settings.values()} == {"config.ini"}
    with pytest.raises(CourseError, match="option: activation_function tango: allowed: "):
        import_folder(weights_folder, tmp_path / "back", given=Given("tango"))


DENSE = "model.layers.1.attention.dense.weight.1.bin"


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (lambda at: (at / DENSE).unlink(), DENSE),
        (lambda at: (at / DENSE).write_bytes(b"\0" * 511), DENSE),
        (lambda at: (at / "model.prefix_prompt.smile.weight.1.bin").unlink(), "smile"),
        (lambda at: edit(at, "[task_0]", "[gpt]\n[task_0]"), "gptneox, gpt"),
        (lambda at: flip(at / "model.layers.0.mlp.attention.bias.sum.bin"), "model.layers.0.mlp.attention.bias.sum.bin"),
        (lambda at: (at.parent / CONVERSION).write_text('{"biases_divided_by": 7}'), "biases_divided_by = 7"),
    ],
)  # fmt: skip
def test_damage_is_one_line_and_writes_nothing(tmp_path: Path, damage: Callable[[Path], object], name: str):
    weights_folder = by_hand(tmp_path / "ft", "parallel", 2, "fp32")
    damage(weights_folder)
    with pytest.raises(CourseError) as refused:
        import_folder(tmp_path / "ft", tmp_path / "new" / "back")
    assert name in str(refused.value) and "\n" not in str(refused.value) and not (tmp_path / "new" / "back").exists()


def edit(folder: Path, old: str, new: str) -> None:
    text = (folder / "config.ini").read_text()
    assert old in text
    (folder / "config.ini").write_text(text.replace(old, new))


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[3] ^= 1
    file.write_bytes(content)


def test_the_tokenizer_is_copied_given_or_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    tiny.write(tmp_path / "ft")
    report = import_folder(tmp_path / "ft", tmp_path / "back")
    assert "no tokenizer/" not in report.summary()
    assert model_folder.load_tokenizer(tmp_path / "back").encode("あい") == tiny.tokenizer().encode("あい")
    (tmp_path / "ft" / "tokenizer").rename(tmp_path / "tokenizer")
    arguments = ["ft", "import", str(tmp_path / "ft"), "-o", str(tmp_path / "back")]
    assert cli._main([*arguments, "--tokenizer", str(tmp_path / "tokenizer")]) == 0
    assert "tasks smile, plain, none → " in capsys.readouterr().out
    assert model_folder.load_tokenizer(tmp_path / "back").eos_token_id == tiny.END
