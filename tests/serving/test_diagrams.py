import torch
from course_lib.serving import weight_map
from course_lib.serving.diagrams import qkv_order
from course_lib.serving.layout import FtConfig

from tests.drawings import texts


def test_qkv_order_is_that_of_the_files() -> None:
    """The exporter writes a bias whose values name part and head; each rank's file holds what its row of the drawing shows."""
    heads, ranks = 4, 2
    config = FtConfig("gptneox", "x", heads, 1, 4, 1, 5, 0, 0, "fp32", ranks)
    piece = weight_map.pieces(config)["layers.0.attention.query_key_value.bias"]
    # In the order of Hugging Face: by head, then query, key, value.
    names = [f"{part}{head}" for head in range(heads) for part in "qkv"]
    whole = torch.zeros(piece.spec.shape)
    for slot, number in zip(weight_map.slots(whole, piece, config), range(len(names)), strict=True):
        slot.fill_(number)
    shown = [text.text for text in texts(qkv_order(heads, ranks))]
    for rank, part in enumerate(weight_map.cut(whole, piece.spec, ranks)):
        at = shown.index(f"file of rank {rank}") + 1
        assert [names[int(number)] for number in part.flatten()] == shown[at : at + 3 * heads // ranks]
