"""Settings of generation: refusals of one line, and the longest continuation that a prompt leaves."""

import pytest
from course_lib.errors import UsageError
from course_lib.generation.config import GenerateConfig
from course_lib.settings import config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": 0.0}, "temperature: .*0.0"),
        ({"num_beams": 4}, "num_beams: 4 is not allowed: .*strategy=beam"),
        ({"strategy": "beam", "num_beams": 2, "num_return_sequences": 3}, "num_return_sequences: 3 .* at most 2"),
    ],
)
def test_wrong_settings_are_one_line(values: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}") as caught:
        config.build(GenerateConfig, values)
    assert "\n" not in str(caught.value)


def test_the_longest_continuation_after_a_prompt_of_three_tokens() -> None:
    assert GenerateConfig().longest_continuation(3, 1000) == 200
    longest = GenerateConfig().longest_continuation(3, 40)
    assert longest == GenerateConfig(max_new_tokens=37).longest_continuation(3, 40) == 37
    assert GenerateConfig(min_new_tokens=300).longest_continuation(3, None) == 300
