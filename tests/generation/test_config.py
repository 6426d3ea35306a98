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
        ({"temperature": -1.0}, "temperature: -1.0 is not allowed"),
        ({"num_beams": 4}, "num_beams: 4 is not allowed with strategy=sampling"),
        ({"strategy": "greedy", "num_return_sequences": 2}, "num_return_sequences: 2 .* at most 1"),
        ({"strategy": "beam", "num_beams": 2, "num_return_sequences": 3}, "num_return_sequences: 3 .* at most 2"),
        ({"strategy": "contrastive"}, "strategy: 'contrastive' is not allowed: .*'greedy'"),
        ({"max_new_tokens": 2, "min_new_tokens": 3}, "min_new_tokens: 3 .* above max_new_tokens"),
        ({"top_p": 0.0}, "top_p: 0.0 is not allowed"),
        ({"top_q": 1}, "top_q: unknown key"),
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


@pytest.mark.parametrize(
    ("values", "positions", "message"),
    [
        ({}, 3, "prompt: 3 tokens are not allowed: the model has 3 positions, and at least one must be left for the continuation"),
        ({"max_new_tokens": 38}, 40, "max_new_tokens: 38 is not allowed: 40 positions less the prompt's 3 tokens leave 37"),
        ({"min_new_tokens": 38}, 40, "min_new_tokens: 38 is not allowed: 40 positions less the prompt's 3 tokens leave 37"),
    ],
)  # fmt: skip
def test_no_room_is_one_line(values: dict[str, Any], positions: int, message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}$"):
        GenerateConfig(**values).room(3, positions)
