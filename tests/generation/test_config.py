"""Settings of generation: refusals of one line, and the room that a prompt leaves."""

from typing import Any

import pytest
from course_lib.errors import UsageError
from course_lib.generation.config import GenerateConfig
from course_lib.settings import config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": 0.0}, "temperature: 0.0 is not allowed: .*strategy=greedy"),
        ({"num_beams": 4}, "num_beams: 4 is not allowed with strategy=sampling"),
        ({"strategy": "beam", "num_beams": 2, "num_return_sequences": 3}, "num_return_sequences: 3 .* at most 2"),
        ({"max_new_tokens": 2, "min_new_tokens": 3}, "min_new_tokens: 3 .* above max_new_tokens"),
    ],
)
def test_wrong_settings_are_one_line(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}") as caught:
        config.build(GenerateConfig, values)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "positions", "room"),
    [
        ({}, None, 200),
        ({}, 1000, 200),
        ({}, 40, 37),
        ({"min_new_tokens": 300}, None, 300),
        ({"min_new_tokens": 300}, 1000, 300),
        ({"max_new_tokens": 37}, 40, 37),
        ({"max_new_tokens": 500}, None, 500),
    ],
)
def test_the_room_after_a_prompt_of_three_tokens(values: dict[str, Any], positions: int | None, room: int) -> None:
    assert GenerateConfig(**values).room(3, positions) == room
