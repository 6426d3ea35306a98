"""The reader of TensorFlow checkpoints, the table of names, and the import, on checkpoints made here and one that TensorFlow made."""

import base64
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from course_lib.checkpoints import weight_files
from course_lib.errors import CourseError
from course_lib.gptsan.hf_config import GPTSanConfig
from course_lib.gptsan.import_tf import import_tf
from course_lib.gptsan.model import GPTSanForCausalLM
from course_lib.gptsan.parameters import hf_shapes, infer_shape, parameter_elements, variables
from course_lib.gptsan.shape import GPTSanShape
from course_lib.gptsan.tensor_bundle import TensorBundle
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from tests.gptsan.bundle_writer import SMALL, random_variables, write_bundle, write_original

# Written by tensorflow-cpu 2.21: tf.compat.v1.train.Saver(sharded=True), two devices; float32, bfloat16, float16 and int64.
TENSORFLOWS = {
    "data-00000-of-00002": "AACAPgA/AAAAAAAAAD4AAIA+AADAPgAAAD8AACA/",
    "data-00001-of-00002": "DAAAAAAAAAAAPgDA",
    "index": "AAAGCAIaAggBAAsNZ2xvYmFsX3N0ZXAICRIAGAEoCDX0yP4KAAkTbW9kZWwvd29iCBMSBBICCAIYASAIKAQ1sNIi6QcCD3BlCA4SBBICCAMoBj"
    "XREVu/BwIVdGUIARIIEgIIAhICCAMgBigYNQruzYMAAAAAAQAAAACso0MWAAAAAAEAAAAAwPKhsAABAm4AeQAAAAABAAAAAFbwUDN+CIsBDgAA"
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAV/uAiyR1R9s=",
}
SHAPES = st.builds(
    GPTSanShape, vocab_size=st.integers(5, 9), max_position_embeddings=st.integers(2, 6), d_model=st.sampled_from([4, 8]),
    num_heads=st.sampled_from([1, 2, 4]), num_experts=st.integers(1, 5), d_ff=st.integers(1, 5), d_ext=st.integers(1, 5),
    d_spout=st.integers(0, 3), num_switch_layers=st.integers(1, 3), num_ext_layers=st.integers(0, 2),
)  # fmt: skip


@pytest.fixture
def values() -> dict[str, np.ndarray]:
    return random_variables()


@pytest.fixture
def original(tmp_path: Path, values) -> Path:
    return write_original(tmp_path / "original", values)


def test_reads_what_tensorflow_wrote(tmp_path: Path):
    for end, content in TENSORFLOWS.items():
        (tmp_path / f"model.ckpt-12.{end}").write_bytes(base64.b64decode(content))
    bundle = TensorBundle(tmp_path)
    read = {name: bundle.read(name) for name in bundle.entries}
    assert read.keys() == {"global_step", "model/wob", "model/wpe", "model/wte"}
    assert read["global_step"].item() == 12
    assert torch.equal(read["model/wob"], torch.tensor([1.5, -2], dtype=torch.float16))
    assert torch.equal(read["model/wpe"], torch.tensor([0, 0.25, 0.5], dtype=torch.bfloat16))
    assert torch.equal(read["model/wte"], torch.arange(6.0).reshape(2, 3) / 8)


@given(
    names=st.sets(st.text(st.characters(codec="utf8", exclude_characters="\0"), min_size=1, max_size=200), max_size=30),
    files=st.integers(1, 3),
    rows=st.integers(1, 9),
)
@settings(max_examples=25, deadline=None)
def test_reading_inverts_writing(tmp_path_factory, names, files, rows):
    tensors = {name: np.full((len(name), number), number, "f2") for number, name in enumerate(sorted(names), 1)}
    bundle = TensorBundle(write_bundle(tmp_path_factory.mktemp("b") / "model", tensors, files, rows))
    assert bundle.entries.keys() == names
    assert all(np.array_equal(bundle.read(name).numpy(), value) for name, value in tensors.items())


@given(SHAPES)
@settings(max_examples=25, deadline=None)
def test_the_table_has_the_models_names_and_shapes(shape):
    found = random_variables(shape)
    ours: dict[str, torch.Tensor] = {}
    for variable in variables(shape):
        parts = variable.to_hf(torch.from_numpy(found[variable.tf]))
        ours |= zip(variable.hf_names(shape), parts, strict=True)
    assert {name: tuple(value.shape) for name, value in ours.items()} == hf_shapes(shape)
    with torch.device("meta"):
        model = GPTSanForCausalLM(GPTSanConfig(**asdict(shape)))
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items() if name != "lm_head.weight"}
    assert list(shapes.items()) == list(hf_shapes(shape).items())
    assert list(parameter_elements(shape).items()) == [(name, p.numel()) for name, p in model.named_parameters()]
    shapes = {name: value.shape for name, value in found.items()}
    assert infer_shape(shapes) == (shape if shape.num_ext_layers else replace(shape, d_ext=4 * shape.d_model))


@pytest.mark.parametrize("shard", [weight_files.SHARD, 2_000])  # bytes
def test_import(original: Path, values, tmp_path: Path, shard, monkeypatch):
    monkeypatch.setattr(weight_files, "SHARD", shard)
    (original / "ja-swe36k.txt").write_text("a\nb", encoding="utf8")
    (original / "emoji.json").write_text("{}")
    report = import_tf(original, tmp_path / "hf")
    assert (report["variables"], report["left_out"]) == (len(values), 2 * len(values) + 1)
    assert report["parameters"] == sum(value.size for value in values.values()) - SMALL.vocab_size
    assert (tmp_path / "hf/vocab.txt").read_text() == "a\nb"
    files = sorted((tmp_path / "hf").glob("*.safetensors"))
    assert (len(files) > 1) == (shard == 2_000)
    stored = {name: value for file in files for name, value in load_file(file).items()}
    assert torch.equal(stored["model.spout.4.weight"], torch.from_numpy(values["pasts/mlp2/kernel"].T))
    assert torch.equal(stored["final_logits_bias"], torch.from_numpy(values["model/wob"][None]))
    assert torch.equal(
        stored["model.blocks.1.self_attn.self_attn.k_proj.weight"],
        torch.from_numpy(values["model/att1/qkv/kernel"][:, 1].reshape(4, 4).T),
    )
    _, info = GPTSanForCausalLM.from_pretrained(tmp_path / "hf", output_loading_info=True)
    assert not any(info[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert str(tmp_path) not in (tmp_path / "hf" / "conversion.json").read_text()
    import_tf(original, tmp_path / "hf")  # its own product may be replaced


def formula(values: dict[str, np.ndarray], ids: list[int], spout: np.ndarray) -> np.ndarray:
    """Logits as the reference writes the original's forward pass, in its own axes; no expert is ever full."""

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * v[f"{name}/g"] + v[f"{name}/b"]

    def softmax(x: np.ndarray) -> np.ndarray:
        return np.exp(x) / np.exp(x).sum(-1, keepdims=True)

    def swish(x: np.ndarray) -> np.ndarray:
        return x / (1 + np.exp(-x))

    v = {f"{name.removeprefix('model/')}": value.astype("f8") for name, value in values.items()}
    for i in range(8):
        spout = np.tanh(spout @ v[f"pasts/mlp{i}/kernel"])
    size = SMALL.d_model // SMALL.num_heads
    slots = (spout @ v["pasts/out/kernel"]).reshape(SMALL.num_layers, 2, SMALL.num_heads, 1, size)
    positions = np.arange(len(ids)) + 1
    x = v["wte"][ids] + v["wpe"][positions]
    seen = np.tril(np.ones((len(ids), len(ids) + 1)), 1)
    for layer in range(SMALL.num_layers):
        if layer == SMALL.num_switch_layers:
            x = x + v["ete"][positions]
        q, k, w = np.einsum("th,hpnd->pntd", x, v[f"att{layer}/qkv/kernel"])
        k, w = (np.concatenate([slot, part], 1) for slot, part in zip(slots[layer], (k, w)))
        scores = np.einsum("ntd,nsd->nts", q, k) * size**-0.5
        heads = np.einsum("nts,nsd->ntd", softmax(scores * seen - (1 - seen) * 10000), w)
        x = x + norm(np.einsum("ntd,ndh->th", heads, v[f"att{layer}/o/kernel"]), f"an{layer}")
        if layer < SMALL.num_switch_layers:
            gate = softmax(x @ v[f"moe{layer}/switch_gating/kernel"])
            inner = np.maximum(np.einsum("th,ehf->tef", x, v[f"moe{layer}/wi/kernel"]), 0)
            outer = np.einsum("tef,efd->ted", inner, v[f"moe{layer}/wo/kernel"])
            best = gate.argmax(-1)
            h = outer[np.arange(len(ids)), best] * gate.max(-1, keepdims=True)
            h = h + np.tanh(x @ v[f"moe{layer}/softmlp/kernel"])
        else:
            h = swish(x @ v[f"mlp{layer}/p1/kernel"] + v[f"mlp{layer}/p1/bias"])
            h = h @ v[f"mlp{layer}/p2/kernel"] + v[f"mlp{layer}/p2/bias"]
        x = x + norm(h, f"ln{layer}")
    return swish(x @ v["dense/kernel"] + v["dense_1/bias"]) @ v["wte"].T + v["wob"]


def test_imported_model_computes_the_originals_formula(original: Path, values, tmp_path: Path):
    import_tf(original, tmp_path / "hf")
    model = GPTSanForCausalLM.from_pretrained(tmp_path / "hf", eval_capacity_factor=100.0).eval()
    ids, spout = [3, 1, 4, 1, 5], np.array([0.3, -1, 2])
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([ids]), spout=torch.tensor(spout[None], dtype=torch.float32)).logits[0]
    np.testing.assert_allclose(logits.numpy(), formula(values, ids, spout), rtol=1e-4, atol=1e-4)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


INDEX, SHARD = "model.ckpt-7.index", "model.ckpt-7.data-00001-of-00002"


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (lambda f, _: (f / SHARD).write_bytes((f / SHARD).read_bytes()[:1000]), f"{SHARD}: cut short"),
        (lambda f, _: flip(f / SHARD, 0), f"{SHARD}: model/an0/b: checksum differs"),
        (lambda f, _: flip(f / INDEX, 100), f"{INDEX}: the index is damaged"),
        (lambda f, _: [p.unlink() for p in f.iterdir()], "0 TensorFlow checkpoints"),
        (lambda f, v: write_original(f, v | {"model/extra": np.zeros(1, "f4")}), "unknown model/extra"),
        (lambda f, v: write_original(f, v | {"model/wpe": np.zeros((7, 5), "f4")}), r"wrong shape model/wpe \(7, 5\)"),
    ],
)
def test_damage_and_other_variables_are_named_and_nothing_is_written(original: Path, values, tmp_path, damage, line):
    damage(original, values)
    with pytest.raises(CourseError, match=line) as caught:
        import_tf(original, tmp_path / "hf")
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["original"]
