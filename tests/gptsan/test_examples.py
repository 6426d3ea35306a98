"""Opening, checking and splitting what training reads."""

import json
from pathlib import Path

import numpy as np
import pytest
from course_lib.errors import CourseError, UsageError
from course_lib.gptsan.examples import Examples, ExampleWriter
from hypothesis import given, settings
from hypothesis import strategies as st


def write(folder: Path, labels: list[int], context: int = 4, documents: list[int] | None = None) -> Path:
    """Without `documents`, each example is a document of its own."""
    sources = np.arange(len(labels)) if documents is None else np.array(documents, int)
    with ExampleWriter(folder, context) as writer:
        for part, source in zip(np.array_split(np.array(labels, int), 2), np.array_split(sources, 2)):
            grid = np.repeat(part[:, None], context, axis=1)
            writer.append(x=grid + 10, y=grid - 1, i=part, document=source)
    classes = {label: labels.count(label) for label in sorted(set(labels))}
    report = {"examples": len(labels), "num_context": context, "classes": classes, "largest_id": max(labels) + 10}
    (folder / "encoding.json").write_text(json.dumps(report))
    return folder


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), min_size=1, max_size=30),
    st.floats(0.01, 0.99),
    st.integers(0, 9),
)
def test_no_document_is_in_both_sets(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, int]], share: float, seed: int
) -> None:
    """`sizes`: the class of each document, and its examples. Both sets have a document of each class of two."""
    documents = [number for number, (_, count) in enumerate(sizes) for _ in range(count)]
    labels = [sizes[number][0] for number in documents]
    examples = Examples(write(tmp_path_factory.mktemp("split"), labels, documents=documents))
    sets = examples.split(share, seed)
    train, held_out = ({documents[row] for row in part.rows} for part in sets)
    classes = [label for label, _ in sizes]
    alone = {number for number, label in enumerate(classes) if classes.count(label) == 1}
    assert train & held_out <= alone and train | held_out == set(range(len(sizes)))
    for label in set(classes):
        members = {number for number, one in enumerate(classes) if one == label}
        if len(members) > 1:
            assert len(members & held_out) == min(max(round(share * len(members)), 1), len(members) - 1)
        else:
            # A single document is split by example, as far as it has two.
            assert members <= train and (members <= held_out) == (sizes[next(iter(members))][1] > 1)


def test_models_that_cannot_read_them(tmp_path: Path) -> None:
    examples = Examples(write(tmp_path, [0, 5]))
    examples.check(16, 6)
    with pytest.raises(UsageError, match="token 15"):
        examples.check(15, 6)
    with pytest.raises(UsageError, match="class 5"):
        examples.check(16, 5)


def test_damaged_folders(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match="no encoded examples: encoding.json is missing"):
        Examples(tmp_path)
    whole = (write(tmp_path, [0, 1]) / "y.npy").read_bytes()
    (tmp_path / "y.npy").write_bytes(whole[:-4])
    with pytest.raises(CourseError, match="y.npy: .*not a complete"):
        Examples(tmp_path)
    np.save(tmp_path / "y.npy", np.zeros((3, 4), np.int32))
    with pytest.raises(CourseError, match=r"y.npy: int32 \(3, 4\)"):
        Examples(tmp_path)
