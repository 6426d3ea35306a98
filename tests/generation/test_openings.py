"""What precedes a text and what ends it, in every engine: openings, several ends, entries beyond the embedding."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from course_lib.checkpoints.model_folder import load_model
from course_lib.errors import UsageError
from course_lib.evaluation.causal import FolderScorer
from course_lib.evaluation.scoring import Sampling
from course_lib.generation.config import LEAST, MOST, GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.generation.prefix_cache import Shape
from course_lib.prefix.files import Prefix
from course_lib.pretrain import text_codec
from course_lib.serving import ct2, export, ft_import, server
from course_lib.serving.client import Client, ask
from course_lib.serving.config import AskConfig
from course_lib.serving.ct2_generate import Ct2Generator
from course_lib.serving.ft_settings import Given
from course_lib.settings import config

from tests.prefix import bases

PROMPTS = ["早稲田大学で", "牛丼", ""]
NEW = 6
GREEDY = GenerateConfig(strategy="greedy", max_new_tokens=NEW, min_new_tokens=0)


def change(path: Path, **values: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.fixture(scope="module", params=bases.FAMILIES)
def foreign(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bases.folder(tmp_path_factory.mktemp(request.param), request.param)


@pytest.fixture(scope="module")
def ours(foreign: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same weights as `course export` writes them: config.json has <s>, generation_config.json begins with </s>."""
    folder = tmp_path_factory.mktemp("ours") / "model"
    shutil.copytree(foreign, folder)
    change(folder / "config.json", bos_token_id=1)
    change(folder / "generation_config.json", bos_token_id=2, eos_token_id=2)
    return folder


def right(folder: Path, before: list[int], ends: tuple[int, ...] = (2,)) -> list[str]:
    """The greedy continuations by the model alone, token by token."""
    model, codec = load_model(folder), text_codec.load(folder)
    generator = Generator(folder, text_codec.load)
    found = []
    for prompt in PROMPTS:
        ids = codec.encode(prompt)
        read, new = [*before, *ids] or [2], list[int]()
        while len(new) < NEW:
            with torch.no_grad():
                logits = model(torch.tensor([read + new])).logits[0, -1]
            logits[generator.not_tokens] = -torch.inf
            assert generator.characters
            blocked = generator.characters.blocked(torch.tensor([read + new]), NEW - len(new))[0]
            new.append(int(logits.masked_fill(blocked, -torch.inf).argmax()))
            if new[-1] in ends:
                new.pop()
                break
        found.append(codec.continuation(ids, new))
    return found


def generated(folder: Path, prefix: Prefix | None = None) -> list[str]:
    rows = Generator(folder, text_codec.load).generate(PROMPTS, GREEDY, [prefix] * len(PROMPTS))
    return [row[0].continuation for row in rows]


def test_a_base_of_the_course_reads_the_end_of_the_text_before(ours: Path, foreign: Path) -> None:
    assert text_codec.load(ours).opening == (2,) and text_codec.load(foreign).opening == ()
    assert generated(ours) == right(ours, [2])
    assert generated(foreign) == right(foreign, [])
    assert generated(ours) != generated(foreign)
    # An empty prompt began like this before, too.
    assert generated(ours)[2] == generated(foreign)[2]
    assert text_codec.load(ours).prompt("牛丼") == [2, *text_codec.load(foreign).prompt("牛丼")]


def test_a_prefix_is_followed_by_the_prompt_itself(ours: Path, foreign: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    prefix = Prefix(torch.randn(4, 2 * 3 * 32, generator=generator), "t", "", Shape(3, 4, 8))
    assert generated(ours, prefix) == generated(foreign, prefix)


@pytest.mark.parametrize(
    ("file", "values"),
    [
        # OpenAI's GPT-2 has one id for both, in both files.
        ("config.json", {"bos_token_id": 2}),
        # A converted Megatron checkpoint has the tokenizer's ids.
        ("generation_config.json", {"bos_token_id": 1}),
        ("generation_config.json", {"bos_token_id": None}),
    ],
)
def test_others_have_no_opening(file: str, values: dict[str, Any], ours: Path, tmp_path: Path) -> None:
    shutil.copytree(ours, tmp_path / "model")
    change(tmp_path / "model" / file, **values)
    assert text_codec.load(tmp_path / "model").opening == ()
    shutil.copytree(ours, tmp_path / "raw")
    (tmp_path / "raw" / "preparation.json").unlink()
    assert text_codec.load(tmp_path / "raw").opening == ()


def asked(folder: Path, target: Path, settings: AskConfig) -> list[str]:
    """The greedy continuations of the served model. Its engine does not keep characters whole."""
    export.export(folder, target)
    with server.running_in_process(target) as url:
        answers = ask(Client(url), text_codec.load(target / "tokenizer"), PROMPTS[:2], settings)
    return [row[0].continuation for row in answers]


class Recorder(Client):
    """A client that keeps what it is asked, and answers nothing."""

    def __init__(self, seen: list[dict[str, Any]]) -> None:
        super().__init__()
        self.seen = seen

    def infer(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        self.seen.append(dict(tensors))
        return {}


def test_all_engines_begin_alike(ours: Path, foreign: Path, tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []
    client = Recorder(seen)
    for folder, opening in ((ours, (2,)), (foreign, ())):
        target = tmp_path / folder.parent.name
        seen.clear()
        ct2.export(folder, target / "ct2")
        writer = Ct2Generator(target / "ct2", 1)
        assert writer.codec.opening == opening
        export.export(folder, target / "ft")
        assert text_codec.load(target / "ft" / "tokenizer").opening == opening
        for task in (None, 0):
            with pytest.raises(KeyError):
                ask(client, text_codec.load(target / "ft" / "tokenizer"), ["牛丼"], AskConfig(), task)
        ids = text_codec.load(folder).encode("牛丼")
        assert [one["input_ids"] for one in seen] == [[[*opening, *ids]], [ids]]
        ft_import.import_folder(target / "ft", target / "back", given=Given(biases_divided_by=1) if "neox" in str(folder) else None)  # fmt: skip
        assert text_codec.load(target / "back").opening == opening


def test_each_of_several_ends_ends_a_text(foreign: Path, tmp_path: Path) -> None:
    codec, model = text_codec.load(foreign), load_model(foreign)
    with torch.no_grad():
        logits = model(torch.tensor([codec.encode(PROMPTS[0])])).logits[0, -1]
    logits[len(codec) :] = -torch.inf
    likeliest = int(logits.argmax())
    folder = tmp_path / "model"
    shutil.copytree(foreign, folder)
    for ends in ([2, likeliest], [likeliest, 2], [2, 10**6, likeliest]):
        change(folder / "generation_config.json", eos_token_id=ends)
        known = tuple(end for end in ends if end < 10**6)
        assert generated(folder) == right(folder, [], known)
        assert generated(folder)[0] == "" != generated(foreign)[0]
    ct2.export(folder, tmp_path / "ct2")
    assert Ct2Generator(tmp_path / "ct2", 1).generate(PROMPTS[:1], GREEDY)[0][0].continuation == ""
    assert asked(folder, tmp_path / "ft", AskConfig(output_length=NEW))[0] == ""
    assert asked(foreign, tmp_path / "one", AskConfig(output_length=NEW))[0] != ""


@pytest.fixture
def beyond(foreign: Path, tmp_path: Path) -> Path:
    """A tokenizer with an added token that has no row in the embedding."""
    folder = tmp_path / "beyond"
    shutil.copytree(foreign, folder)
    (folder / "preparation.json").unlink()
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    rows = json.loads((folder / "config.json").read_text())["vocab_size"]
    added = {"id": rows, "content": "[NEW]", "special": False}
    others = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    content["added_tokens"].append(added | others)
    # The entries between the vocabulary and the new one.
    content["added_tokens"][-1:-1] = [
        {"id": number, "content": f"[{number}]", "special": True} | others
        for number in range(len(content["model"]["vocab"]), rows)
    ]
    path.write_text(json.dumps(content))
    return folder


def test_only_a_prompt_that_uses_an_entry_beyond_the_embedding_is_refused(beyond: Path, tmp_path: Path) -> None:
    generator = Generator(beyond, text_codec.load)
    said = r"^'\[NEW\]' in a text is token \d+; the model has an embedding for tokens 0 to \d+$"
    ct2.export(beyond, tmp_path / "ct2")
    for write in (generator.generate, Ct2Generator(tmp_path / "ct2", 1).generate):
        assert write(["早稲田"], GREEDY)
        with pytest.raises(UsageError, match=said):
            write(["早稲田", "早[NEW]田"], GREEDY)
    scorer = FolderScorer(generator)
    assert scorer.tokens("早稲田", True) and scorer.complete(["早稲田"], Sampling(3))
    with pytest.raises(UsageError, match=said):
        scorer.tokens("[NEW]", True)


@pytest.mark.parametrize("temperature", [LEAST, 0.001, 1.0, MOST])
def test_allowed_temperatures_give_texts(temperature: float, foreign: Path) -> None:
    given = {"max_new_tokens": 3, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    generator = Generator(foreign, text_codec.load)
    (found,) = generator.generate(["早稲田"], config.build(GenerateConfig, given))
    if temperature < 1:
        assert found == generator.generate(["早稲田"], config.build(GenerateConfig, {"strategy": "greedy", "max_new_tokens": 3}))[0]  # fmt: skip


@pytest.mark.parametrize("value", [1e-40, 0.0, -1.0, 1e40, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["temperature", "repetition_penalty"])
def test_others_are_refused_in_one_line(name: str, value: float) -> None:
    for settings in (GenerateConfig, AskConfig):
        with pytest.raises(UsageError, match=f"^{name}: .* is not allowed: ") as error:
            config.build(settings, {name: value})
        assert "\n" not in str(error.value)
