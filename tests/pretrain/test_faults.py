"""The stored runs of 4a.9 show their faults on every seed, and the script that stores them trains with each fault."""

from types import SimpleNamespace

import pytest
import torch
from course_lib.exercises.by_hand import FAULTS
from course_lib.notebooks import measured

from tests.bench import faults

SEEDS = (0, 1, 2)
CURVES, ENDS = measured.rows("pretrain/faults"), measured.rows("pretrain/fault_ends")


def numbers(run: str, seed: int) -> dict[str, float]:
    """What a learner sees of a run: losses after 40 steps, at the end and at their lowest, and its text judged."""
    curve = [row for row in CURVES if row["run"] == run and row["seed"] == seed]
    (end,) = [row for row in ENDS if row["run"] == run and row["seed"] == seed]
    assert curve[-1]["held_out"] == end["held_out"] or run == dropout()
    held_out = [row["held_out"] for row in curve]
    return {
        "early": next(row["held_out"] for row in curve if row["step"] == 40), "train": curve[-1]["train"], "held_out": held_out[-1],
        "lowest": min(held_out), "twice": abs(end["held_out"] - end["again"]),
        "source": end["source"], "surprise": end["surprise"],
    }  # fmt: skip


def dropout() -> str:
    (letter,) = (letter for letter, fault in FAULTS.items() if fault == "dropout")
    return letter


def named(found: dict[str, float], sound: dict[str, float]) -> str:
    """The fault by its clues, in the order of the hints of exercise 9."""
    if found["twice"] > 0:
        return "dropout"
    if found["held_out"] < found["source"]:
        if found["early"] < found["source"]:
            return "shift"
        return "seen" if found["surprise"] < 3 else "leak"
    if found["train"] < found["source"] and found["held_out"] > found["lowest"] + 0.5:
        return "copies"
    return "rate" if found["train"] > 3 else "sound"


@pytest.mark.parametrize("seed", SEEDS)
def test_the_clues_tell_the_six_faults_apart(seed: int) -> None:
    sound = numbers("sound", seed)
    assert {letter: named(numbers(letter, seed), sound) for letter in FAULTS} == FAULTS
    assert named(sound, sound) == "sound"


def test_the_script_trains_with_each_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "SEEDS", (0,))
    monkeypatch.setattr(faults, "STEPS", 2)
    tokenizer = SimpleNamespace(get_vocab_size=lambda: 50, token_to_id=lambda token: 0)
    codec = SimpleNamespace(tokenizer=tokenizer, encode=lambda text: [1, 2], decode=str)
    train, held_out = (list(torch.randint(1, 50, (20, 40))) for _ in range(2))
    found = {end["run"]: (curve, end) for curve, end in faults.runs(faults.Data(train, held_out, 0.2, codec))}
    letters = {fault: letter for letter, fault in FAULTS.items()}
    assert found.keys() == {"sound", *FAULTS}
    first = {run: curve[0]["train"] for run, (curve, _) in found.items()}
    # Before the first update, the learning rate has changed nothing.
    assert first[letters["rate"]] == first["sound"] != first[letters["leak"]]
    assert first[letters["shift"]] < first["sound"] - 0.5
    assert [run for run, (_, end) in found.items() if end["held_out"] != end["again"]] == [letters["dropout"]]
