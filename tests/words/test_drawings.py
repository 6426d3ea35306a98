"""Every drawing in the pseudo-language: its texts fit, and none is English, neither in the picture nor in its description."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from course_lib.corpus import diagrams as corpus_drawings
from course_lib.gptsan import diagrams as gptsan_drawings
from course_lib.japanese import diagrams as japanese_drawings
from course_lib.japanese import lattice
from course_lib.notebooks.drawing import SMALLEST, Canvas, Drawing
from course_lib.notebooks.road import STOPS, road
from course_lib.prefix import diagrams as prefix_drawings
from course_lib.pretrain import diagrams as pretrain_drawings
from course_lib.serving import diagrams as serving_drawings
from course_lib.subword import diagrams as subword_drawings

from tests.words import pseudo
from tests.words.test_words import install

SCORES = {piece: -float(len(piece)) for piece in ("▁", "▁大", "大", "大学", "学", "生")}
DRAWINGS: dict[str, Callable[[], Drawing]] = {
    **{name: partial(road, name) for name in STOPS},
    "banding": lambda: corpus_drawings.banding({"x": [1, 2, 3, 4], "y": [1, 2, 5, 6], "z": [7, 8, 9, 10]}, 2),
    "lattice": lambda: japanese_drawings.lattice(
        japanese_drawings.mecab_lattice("外国人参政権"), lattice.path(["外国", "人", "参政", "権"])
    ),
    "merges": lambda: subword_drawings.merges_and_lattice("大学生", [("大", "学")], SCORES),
    "block": pretrain_drawings.gpt2_block,
    "samples": lambda: pretrain_drawings.samples([7, 4, 9], 6),
    "zero": pretrain_drawings.zero2_step,
    "extra": lambda: gptsan_drawings.extra_stage(3, 2, 4),
    "prefix": prefix_drawings.cache_and_prefix,
    "qkv": serving_drawings.qkv_order,
    "request": serving_drawings.request_path,
}
# Names of programs, formats and functions, and symbols in shapes.
NAMES = {
    "Unigram", "DeepSpeed", "FasterTransformer", "Triton", "LayerNorm", "Hugging", "Face", "client", "ask", "execute", "Batch",
    "step",
}  # fmt: skip


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_drawing_has_no_english_words(name: str, catalogues: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COURSE_LOCALE", str(catalogues))
    monkeypatch.setenv("COURSE_LANG", pseudo.LANGUAGE)
    drawing = DRAWINGS[name]()
    for text in [*pseudo.svg_texts(drawing.svg), drawing.alt]:
        assert set(pseudo.english(text)) <= NAMES, text


def test_a_translation_that_is_too_wide_is_written_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def label(text: str) -> str:
        canvas = Canvas(200, 100)
        canvas.box(10, 40, 60, 30, text)
        return canvas.finish("x", "y").svg

    with pytest.raises(ValueError, match="does not fit into a box"):
        label("入力の埋め込み")
    install(tmp_path, monkeypatch, {})
    assert 'font-size="8"' in label("入力の埋め込み") and 'font-size="14"' in label("入力")
    with pytest.raises(ValueError, match="does not fit into a box"):
        label("入力の埋め込み" * 2)
    assert SMALLEST == 7
