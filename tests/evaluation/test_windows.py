"""Every token is scored exactly once, with the context that the stride promises."""

import pytest
from course_lib.errors import UsageError
from course_lib.evaluation.windows import WindowSettings, score, windows
from hypothesis import given
from hypothesis import strategies as st

from tests.evaluation.toys import Recorder


@given(st.lists(st.integers(0, 60), max_size=8), st.integers(2, 20), st.integers(1, 20), st.integers(1, 5))
def test_every_token_is_scored_once(lengths: list[int], size: int, stride: int, batch: int) -> None:
    stride = min(stride, size)
    model = Recorder(max_length=20)
    sequences = [model.tokens("あ" * length, end=True) for length in lengths]
    found = score(model, sequences, WindowSettings(window=size, stride=stride, batch_size=batch))
    assert [-each.log_probabilities for each in found] == [pytest.approx(range(n + 1)) for n in lengths]
    for each in (window for batch in model.seen for window in batch):
        assert len(each.read) == len(each.target) <= size
        assert each.start == 0 or each.first >= size - stride


def test_windows_of_a_text_by_hand() -> None:
    tokens = Recorder().tokens("abcdefg", end=False)
    cut = [("".join(map(chr, w.target)), w.first) for w in windows(tokens, 4, 2)]
    assert cut == [("abcd", 0), ("cdef", 2), ("defg", 3)]
    assert [w.read[1:] == w.target[:-1] for w in windows(tokens, 4, 2)] == [True] * 3


@pytest.mark.parametrize(("values", "message"), [({"window": 30}, "room for 20"), ({"stride": 21}, "window .20.")])
def test_settings_that_the_model_has_no_room_for(values: dict[str, int], message: str) -> None:
    model = Recorder(max_length=20)
    with pytest.raises(UsageError, match=message):
        score(model, [model.tokens("a", end=True)], WindowSettings(**values))
