"""A completion's text is told in whole characters, up to a stop string, whatever the tokens are."""

from itertools import pairwise

from course_lib.generation.byte_tokens import ByteTokens
from course_lib.serving.text_stream import NewToken, Piece, TextStream
from hypothesis import example, given
from hypothesis import strategies as st

# Letters of one to four bytes, a combining mark, an emoji of several code points. U+FFFD is never generated.
TEXTS = st.text(
    st.sampled_from("aé、昔゙😃👨‍👩‍👧\n") | st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"),
    max_size=12,
)


def streamed(pieces: list[bytes], stops: list[str], wanted: int | None = None) -> tuple[list[Piece], TextStream]:
    """The pieces that a stream tells if its tokens have these bytes; it is cut off after them."""
    table = ByteTokens(pieces)
    told: list[Piece] = []

    def decode(ids: list[int]) -> str:
        return b"".join(pieces[i] for i in table.whole(ids)).decode()

    stream = TextStream(decode, [len(pieces)], stops, told.append, wanted)
    for token in range(len(pieces)):
        if stream.add(NewToken(token, -float(token)), token == len(pieces) - 1):
            break
    return told, stream


@given(TEXTS.filter(bool), st.data())
def test_no_split_of_the_bytes_into_tokens_cuts_a_character(text, data):
    written = text.encode()
    cuts = data.draw(st.sets(st.integers(1, max(1, len(written) - 1))))
    ends = sorted({0, *(cut for cut in cuts if cut < len(written)), len(written)})
    told, _ = streamed([written[start:end] for start, end in pairwise(ends)], [])
    assert "".join(piece.text for piece in told) == text
    assert [piece.finish_reason for piece in told] == [None] * (len(told) - 1) + ["length"]
    assert all("\ufffd" not in piece.text for piece in told)


@given(
    st.text("abあ", min_size=1, max_size=20), st.lists(st.text("abあ", min_size=1, max_size=4), min_size=1, max_size=3)
)
@example("aab", ["ab"])
@example("あaああ", ["ああa", "あ"])
def test_a_text_ends_in_front_of_the_first_stop_string(text, stops):
    told, stream = streamed([letter.encode() for letter in text], stops)
    # The first one that is complete ends the text; of several, the one that begins first.
    complete = min(
        (at for at in range(1, len(text) + 1) if any(text[:at].endswith(stop) for stop in stops)), default=None
    )
    if complete is None:
        expected, reason = text, "length"
    else:
        starts = [text[:complete].find(stop) for stop in stops if stop in text[:complete]]
        expected, reason = text[: min(starts)], "stop"
    assert "".join(piece.text for piece in told) == expected
    assert told[-1].finish_reason == reason
    assert stream.count == (complete or len(text))


def test_text_that_may_become_a_stop_string_waits():
    told, _ = streamed([b"x", b"y", b"c", b"x", b"y", b"z"], ["xyz"])
    assert [(piece.text, piece.finish_reason) for piece in told] == [("xyc", None), ("", "stop")]


def test_tokens_of_a_text_that_is_cut_are_not_told():
    told, _ = streamed([b"ab", b"cd", b"ef"], ["de"], wanted=0)
    assert [(piece.text, [(new.token, new.offset) for new in piece.tokens]) for piece in told] == [
        ("ab", [(0, 0)]),
        ("c", [(1, 2)]),
        ("", []),
    ]


def test_the_end_token_ends_a_text_and_is_counted():
    told: list[Piece] = []
    stream = TextStream(lambda ids: "あ" * len(ids), [9], [], told.append)
    assert [stream.add(NewToken(token), False) for token in (1, 2, 9)] == [False, False, True]
    assert [(piece.text, piece.finish_reason) for piece in told] == [("あ", None), ("あ", None), ("", "stop")]
    assert stream.count == 3


def test_a_text_that_begins_again_is_told_once():
    told: list[Piece] = []
    stream = TextStream(lambda ids: "あ" * len(ids), [9], [], told.append, 0)
    for token in (1, 2):
        stream.add(NewToken(token), False)
    stream.restart()
    for token in (1, 2, 3):
        stream.add(NewToken(token), False)
    assert "".join(piece.text for piece in told) == "あああ"
    assert [new.token for piece in told for new in piece.tokens] == [1, 2, 3]
    assert stream.count == 3
