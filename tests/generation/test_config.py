"""Settings of generation: refusals of one line, and the longest continuation that a prompt leaves."""

from pathlib import Path
from typing import Any

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


FILE = Path("model/generation_config.json")
OWN = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.2, "max_new_tokens": 7}


def chosen(own: dict[str, Any], **given: Any) -> dict[str, Any]:
    """What the settings become, without those that are still unset or the defaults."""
    completed = config.to_dict(GenerateConfig(**given).completed(own, FILE))
    default = config.to_dict(GenerateConfig().completed({}))
    return {name: value for name, value in completed.items() if value != default[name]}


def test_without_a_file_the_defaults_of_the_help_hold() -> None:
    settings = GenerateConfig().completed({})
    assert (settings.strategy, settings.top_k, settings.top_p, settings.temperature) == ("sampling", 50, 0.75, 1.0)
    assert (settings.repetition_penalty, settings.no_repeat_ngram_size, settings.seed) == (1.0, 0, 1024)
    assert settings.completed(OWN) == settings
    for row in config.describe(GenerateConfig):
        if "unset: the model's own" in row.help:
            assert row.default == "null" and row.help.endswith(str(getattr(settings, row.key)))


def test_a_models_own_settings_hold_where_none_is_given() -> None:
    assert chosen(OWN) == {"temperature": 0.6, "top_p": 0.9, "top_k": 20, "repetition_penalty": 1.2}
    # Also a value that is the default counts as given.
    assert chosen(OWN, top_p=0.75, temperature=1.0, seed=None) == {"top_k": 20, "repetition_penalty": 1.2, "seed": None}
    assert chosen({"top_k": None, "no_repeat_ngram_size": 3}) == {"no_repeat_ngram_size": 3}


def test_do_sample_and_num_beams_are_a_strategy() -> None:
    assert chosen({"do_sample": False, "temperature": 0.0, "top_p": 0}) == {"strategy": "greedy"}
    assert chosen({"do_sample": False, "num_beams": 3}) == {"strategy": "beam", "num_beams": 3}
    assert chosen({"num_beams": 3}) == chosen({"do_sample": False}, strategy="sampling") == {}
    assert chosen({"do_sample": False, "top_k": 9}, strategy="sampling") == {"top_k": 9}


@pytest.mark.parametrize(
    ("own", "given", "message"),
    [
        ({"temperature": 0.0}, {}, "temperature: 0.0 is not allowed: "),
        ({"top_k": "fifty"}, {}, "top_k: 'fifty' is not allowed: "),
        ({"do_sample": False, "num_beams": []}, {"num_return_sequences": 2}, "num_return_sequences: 2 is not allowed"),
        ({"do_sample": False, "num_beams": "4"}, {}, "num_beams: '4' is not allowed: "),
    ],
)
def test_an_own_value_that_is_not_allowed_is_one_line(own: dict[str, Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{FILE}: {message}"):
        GenerateConfig(**given).completed(own, FILE)
