"""The kit for drawings, and rules that every drawing of the course keeps."""

import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from course_lib.corpus.diagrams import banding
from course_lib.errors import UsageError
from course_lib.gptsan.diagrams import extra_stage
from course_lib.gptsan.freeze import is_extra
from course_lib.gptsan.shape import ShapeConfig
from course_lib.japanese.diagrams import LONGEST, lattice, mecab_lattice
from course_lib.japanese.lattice import path as lattice_path
from course_lib.japanese.segment import segment
from course_lib.notebooks import drawing
from course_lib.notebooks.drawing import Canvas, Color, Drawing, rows_without_overlap, text_width
from course_lib.notebooks.road import STOPS, road
from course_lib.prefix.diagrams import cache_and_prefix
from course_lib.pretrain.diagrams import gpt2_block, samples, zero2_step
from course_lib.pretrain.sampling import GptDataset
from course_lib.serving.diagrams import qkv_order, request_path
from course_lib.subword.diagrams import merge_tree, merges_and_lattice, segmentations
from course_lib.workspace.chapters import CHAPTERS

from tests.drawings import SVG, fill_behind, root, texts

MERGES = [("東", "京"), ("大", "学"), ("大学", "院"), ("京", "大")]
SCORES = {
    "▁": -2.0,
    "▁東": -7.0,
    "東京": -5.0,
    "東": -6.5,
    "京": -6.0,
    "大": -6.0,
    "学": -6.2,
    "院": -6.6,
    "大学": -4.0,
    "京大": -8.0,
}
SIGNATURES = {"A": [3, 7, 5, 1, 9, 9, 2, 4], "B": [3, 7, 5, 2, 9, 9, 2, 4], "C": [8, 7, 1, 2, 6, 0, 3, 5]}
ALL: dict[str, Callable[[], Drawing]] = {
    **{f"road {name}": partial(road, name) for name in STOPS},
    "gpt2_block": gpt2_block,
    "gpt2_block in numbers": partial(gpt2_block, 4, 1024, 1600, 25),
    "zero2_step": zero2_step,
    "samples": partial(samples, [5, 7, 4, 6], 4),
    "samples, many": partial(samples, [1, 2, 12, 3, 9, 1, 8], 7),
    "cache_and_prefix": cache_and_prefix,
    "cache_and_prefix, longer": partial(cache_and_prefix, ("この", "文", "は"), "長い", 5),
    "lattice": lambda: lattice(mecab_lattice("東京都に住む")),
    "lattice, longest": lambda: lattice(mecab_lattice("すもももももももものうちだ")),
    "lattice, two paths": lambda: lattice(mecab_lattice("外国人参政権"), lattice_path(["外国", "人", "参政", "権"])),
    "lattice, one word": lambda: lattice(mecab_lattice("はい")),
    "merges_and_lattice": partial(merges_and_lattice, "東京大学院", MERGES, SCORES),
    "merges_and_lattice, one character": partial(merges_and_lattice, "東", MERGES, SCORES),
    "banding": partial(banding, SIGNATURES, 4),
    "banding, full hashes": partial(banding, {"1": [2**32 - 1, 5, 6, 7], "2": [2**31, 5, 6, 8]}, 2),
    "extra_stage": partial(extra_stage, 3, 2, 4),
    "extra_stage, published": partial(extra_stage, 10, 14, 16),
    "qkv_order": qkv_order,
    "qkv_order, six heads": partial(qkv_order, 6, 3),
    "request_path": request_path,
}
every_drawing = pytest.mark.parametrize("name", ALL)


@every_drawing
def test_drawing_is_xml_with_title_and_description(name: str) -> None:
    shown = ALL[name]()
    children = {element.tag: element.text for element in root(shown)}
    assert children[f"{SVG}title"] == shown.title and children[f"{SVG}desc"] == shown.description
    assert len(shown.title) > 8 and len(shown.description) > 60
    assert "\n" not in shown.alt


@every_drawing
def test_no_text_overlaps_another(name: str) -> None:
    found = texts(ALL[name]())
    overlaps = [(a.text, b.text) for at, a in enumerate(found) for b in found[at + 1 :] if a.overlaps(b)]
    assert overlaps == []


@every_drawing
def test_notebook_receives_an_image_whose_source_is_the_svg(name: str) -> None:
    shown = ALL[name]()
    bundle = shown._repr_mimebundle_(include=None, exclude=None)
    assert bundle.keys() == {"text/html", "text/plain"} and bundle["text/plain"] == shown.alt
    tag = re.fullmatch(
        r'<img alt="([^"<>]+)" width="(\d+)" src="data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)">', bundle["text/html"]
    )
    assert tag and b64decode(tag[3]).decode() == shown.svg and int(tag[2]) == shown.width <= 920


def test_drawings_are_the_same_bytes_in_another_process() -> None:
    program = (
        "from tests.test_drawing import ALL; import sys; sys.stdout.write(''.join(make().svg for make in ALL.values()))"
    )
    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", program], capture_output=True, check=True, cwd=Path(__file__).parent.parent,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": str(Path(__file__).parent.parent)},
    )  # fmt: skip
    assert done.stdout.decode() == "".join(make().svg for make in ALL.values())


def contrast(one: str, other: str) -> float:
    """WCAG 2.2, contrast ratio."""

    def luminance(color: str) -> float:
        parts = (int(color[at : at + 2], 16) / 255 for at in (1, 3, 5))
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    brighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def test_text_is_readable_on_every_fill() -> None:
    colors = [color for color in vars(drawing).values() if isinstance(color, Color)]
    assert len(colors) >= 7
    for color in colors:
        assert contrast(drawing.INK, color.fill) >= 4.5 and contrast(color.line, color.fill) >= 4.5
        assert contrast(color.line, drawing.CARD) >= 4.5
    assert contrast(drawing.MUTED, drawing.CARD) >= 4.5 and contrast(drawing.INK, drawing.CARD) >= 4.5
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_text_that_does_not_fit_is_an_error() -> None:
    canvas = Canvas(200, 100)
    with pytest.raises(ValueError, match="does not fit into a box of 40 × 20"):
        canvas.box(10, 10, 40, 20, "transformer")
    with pytest.raises(ValueError, match="does not fit into a box of 90 × 20"):
        canvas.box(10, 10, 90, 20, "two", "lines")
    with pytest.raises(ValueError, match="does not fit on a card of 200 × 100"):
        canvas.text(190, 50, "over the edge")
    with pytest.raises(ValueError, match="does not fit on a card of 200 × 100"):
        canvas.text(100, 99, "low")


def test_special_characters_reach_the_reader() -> None:
    canvas = Canvas(300, 60)
    canvas.text(150, 40, 'a < b & "c"')
    shown = canvas.finish("x < y", 'with "quotes" & <tags>')
    assert 'a < b & "c"' in [text.text for text in texts(shown)]
    assert 'alt="x &lt; y. with &quot;quotes&quot; &amp; &lt;tags&gt;"' in shown.html


def test_width_of_text_is_at_least_that_of_dejavu_sans() -> None:
    from matplotlib.font_manager import FontProperties, findfont
    from PIL import ImageFont

    font = ImageFont.truetype(findfont(FontProperties(family="DejaVu Sans")), 14)
    for text in (
        "LayerNorm",
        "softmax(Q·Kᵀ / √d), masked",
        "3 × [2, 4, 8, 16]",
        "10,487",
        "inputs 12–15, targets 13–16",
        "MinHash",
    ):
        assert 0.97 * font.getlength(text) <= text_width(text) <= 1.2 * font.getlength(text), text
    assert text_width("東京都") == 42


def test_rows_without_overlap() -> None:
    assert rows_without_overlap([(0, 2), (2, 3), (0, 1), (1, 3), (1, 2)]) == [0, 0, 1, 1, 2]
    assert rows_without_overlap([]) == []


def test_road_has_every_notebook_and_marks_one() -> None:
    assert list(STOPS) == [name for chapter in CHAPTERS for name in chapter.notebooks]
    for name, (_, lines) in STOPS.items():
        shown = road(name)
        assert [fill_behind(shown, other[0]) == drawing.ORANGE.fill for _, other in STOPS.values()].count(True) == 1
        assert fill_behind(shown, lines[0]) == drawing.ORANGE.fill
        assert shown.description.endswith(f"You are at {lines[0]}.")
    with pytest.raises(UsageError, match="'08' does not exist; allowed: 01_corpus_prep, "):
        road("08")


def test_block_computes_shapes() -> None:
    shown = {text.text for text in texts(gpt2_block(2, 8, 64, 4))}
    assert {"[2, 8, 64]", "[2, 8, 192]", "3 × [2, 4, 8, 16]", "[2, 4, 8, 8]", "[2, 8, 256]"} <= shown


class Numbered:
    """Documents whose tokens are their positions in the stream."""

    def __init__(self, lengths: list[int]) -> None:
        import numpy as np

        self.sizes = np.array(lengths, np.int32)

    def get(self, i: int, offset: int, length: int):
        import numpy as np

        return np.arange(length) + int(self.sizes[:i].sum()) + offset


def test_samples_are_those_of_the_dataset() -> None:
    lengths, seq_length = [5, 7, 4, 6], 4
    dataset = GptDataset(Numbered(lengths), range(4), seq_length, None, seed=0, cache=None)
    # The drawing has the documents in their own order: so must the dataset.
    order = dataset.indices.documents.tolist()
    shown = [text.text for text in texts(samples([lengths[document] for document in order], seq_length))]
    assert sum(text.startswith("sample ") for text in shown) == len(dataset) == 5
    starts = [0, *(sum(lengths[document] for document in order[: at + 1]) for at in range(3))]
    place = dict(zip(order, starts))
    for at, sample in enumerate(dataset.indices.shuffle.tolist()):
        owner = [
            next(d for d in range(4) if sum(lengths[:d]) <= token < sum(lengths[: d + 1]))
            for token in dataset[at].tolist()
        ]
        positions = [token - sum(lengths[:d]) + place[d] for token, d in zip(dataset[at].tolist(), owner)]
        first = sample * seq_length
        assert positions == list(range(first, first + seq_length + 1))
        assert f"inputs {first}–{first + 3}, targets {first + 1}–{first + 4}" in shown
    assert "The last 1 token of the stream fills no sample." in shown
    with pytest.raises(UsageError, match="37 tokens are not allowed; allowed: 5 to 36"):
        samples([37], 4)


def test_lattice_is_what_mecab_chose_and_its_costs_add_up() -> None:
    for sentence in ("東京都に住む", "すもももももももものうち", "外国人参政権"):
        *words, end = mecab_lattice(sentence)
        path = sorted((node for node in words if node.best), key=lambda node: node.start)
        assert " ".join(node.surface for node in path) == segment(sentence)
        assert all(sentence[node.start : node.end] == node.surface for node in words)
        assert end.part == "EOS" and end.start == len(sentence)
        shown = [text.text.replace("−", "-").replace(",", "") for text in texts(lattice([*words, end]))]
        links = [int(text) for text in shown[shown.index("0") :] if re.fullmatch(r"[+-]\d+", text)]
        connections = [text for text in shown if re.fullmatch(r"\+\d+|-\d+", text)]
        assert f"sum of all costs: {end.total}" in shown and links and connections
    right = lattice_path(["外国", "人", "参政", "権"])
    drawn = lattice(mecab_lattice("外国人参政権"), right)
    assert [fill_behind(drawn, word) for word in ("人参", "参政", "6,512")] == [
        color.fill for color in (drawing.ORANGE, drawing.GREEN, drawing.PLAIN)
    ]
    shown = [text.text for text in texts(drawn)]
    assert {"sum of all costs: 8,421", f"sum of all costs: {right[-1].total:,}"} <= set(shown)
    # One of two entries 人 is on the path; the sum of its connection and cost leads to the total below it.
    assert right[1].total == right[0].total + right[1].connection + right[1].cost
    with pytest.raises(UsageError, match="without white space"):
        mecab_lattice("東京 都")
    with pytest.raises(UsageError, match=f"allowed: up to {LONGEST}"):
        lattice(mecab_lattice("あ" * (LONGEST + 1)))


def test_merge_tree_and_segmentations() -> None:
    tokens = merge_tree("東京大学院", MERGES)
    assert [(node.start, node.end, node.rank, node.depth) for node in tokens] == [(0, 2, 0, 1), (2, 5, 2, 2)]
    ranked = segmentations("▁東京大学院", SCORES)
    assert ranked[0][1] == ("▁", "東京", "大学", "院") and ranked[0][0] == pytest.approx(-17.6)
    assert [score for score, _ in ranked] == sorted((score for score, _ in ranked), reverse=True)
    assert all("".join(path) == "▁東京大学院" for _, path in ranked) and len(set(ranked)) == len(ranked) == 8
    with pytest.raises(UsageError, match="covered by the pieces"):
        merges_and_lattice("猫", MERGES, SCORES)


def test_banding_finds_pairs_with_an_equal_band() -> None:
    assert "candidate pairs: A–B: 7 of 8 values equal" in [text.text for text in texts(banding(SIGNATURES, 4))]
    assert "candidate pairs: none" in [text.text for text in texts(banding(SIGNATURES, 1))]
    # The last four digits of both values are the same, and the values are different.
    shown = [text.text for text in texts(banding({"A": [100_256, 1000], "B": [200_256, 99_999]}, 2))]
    assert "candidate pairs: none" in shown and shown.count("…0256") == 2 and {"1000", "99999"} <= set(shown)
    with pytest.raises(UsageError, match="bands: 3 is not allowed"):
        banding(SIGNATURES, 3)


def test_extra_stage_is_colored_as_it_is_trained() -> None:
    shown, shape = extra_stage(3, 2, 4), ShapeConfig(num_switch_layers=3, num_ext_layers=2)
    parameters = {
        "3 switch layers": "model.blocks.2.self_attn.norm.weight", "2 extra layers": "model.blocks.3.self_attn.norm.weight",
        "+ extra positions": "model.extra_position_embeddings.weight", "spout network": "model.spout.0.weight",
        "embedding + position": "model.embed_tokens.weight", "linear, swish": "model.last_project.weight",
    }  # fmt: skip
    for label, name in parameters.items():
        expected = drawing.TRAINED if is_extra(name, shape) else drawing.FROZEN
        assert fill_behind(shown, label) == expected.fill, label


def test_qkv_order_gives_whole_heads_to_each_rank() -> None:
    shown = [text.text for text in texts(qkv_order(4, 2))]
    rank0, rank1 = shown.index("file of rank 0"), shown.index("file of rank 1")
    assert shown[rank0 + 1 : rank1] == ["q0", "q1", "k0", "k1", "v0", "v1"]
    assert shown[rank1 + 1 : rank1 + 7] == ["q2", "q3", "k2", "k3", "v2", "v3"]
    with pytest.raises(UsageError, match="4 on 3 ranks"):
        qkv_order(4, 3)
