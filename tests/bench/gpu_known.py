"""Trainings whose answer is known, on the card: the small world in bf16 and fp16, and the run of the profile single-gpu.

The first two train the model of the profile tiny to its end and fail if it stays far above its source (known_answer.py).
The third takes the recipe on text (gpu_recipe.py) from documents to judged model, for a minute, on the same text.
"""

import json
import os
from functools import partial

from course_lib.errors import CourseError
from course_lib.world.genres import write_documents

from tests.bench import gpu_recipe, known_answer
from tests.bench.gpu_common import Bench, Part, Values, overrides

# Steps on CPU, where only the path is tried.
STEPS = 4
# The world has few words: from 200 documents, BPE learns no more than 1,264 entries.
VOCABULARY = 1000


def known(dtype: str, bench: Bench) -> Values:
    """Bits per character above the source after the whole training; CourseError if they are not those of a sound one."""
    changes: Values = {"precision.dtype": bench.precision(dtype), "launch.ranks": 1, "batch.micro_size": 4}
    changes |= {"launch.device": "cpu" if bench.tiny else "auto"}
    if bench.tiny:
        changes |= {"engine.max_steps": STEPS, "engine.eval_freq": STEPS, "engine.save_steps": STEPS}
    found = known_answer.measure(known_answer.trained(bench.folder / "world", overrides(changes)), samples=0)
    excess = found["model"] - found["source"]
    note = f"{excess:.3f} bits per character above the source; allowed: {known_answer.ALLOWED}"
    if excess > known_answer.ALLOWED and not bench.tiny:
        raise CourseError(note)
    what = f"known answer in {changes['precision.dtype']}{f', {STEPS} steps' if bench.tiny else ''}"
    return {"kind": "note", "what": what, "note": note} | found


def recipe(bench: Bench) -> Values:
    """The figures of the recipe: steps, speed, losses of held-out text, bits per character, minimal pairs, samples."""
    if not bench.tiny:
        os.environ["COURSE_PROFILE"] = "single-gpu"
    text, prepared = bench.folder / "world.jsonl", bench.folder / "prepared"
    number, seed = known_answer.TRAINING
    write_documents(text, number // 80 if bench.tiny else number, seed)
    gpu_recipe.prepare([text], prepared, VOCABULARY)
    speed, changes = (20, ["launch.device=cpu"]) if bench.tiny else (300_000, [])
    settings = gpu_recipe.recipe(prepared, bench.folder / "run", 1, speed, 20, changes)
    gpu_recipe.trained(settings, float("inf"))
    gpu_recipe.judge(settings, prepared, bench.folder)
    found = json.loads((bench.folder / "results" / "recipe.json").read_text(encoding="utf8"))
    losses = [*found["held_out_loss"].values()]
    bits = ", ".join(f"{one['bits']['bits_per_character']:.3f} {one['model']}" for one in found["scores"])
    note = f"{found['steps']} steps, held-out loss {losses[0]:.2f} → {losses[-1]:.2f}; bits per character: {bits}"
    return {"kind": "note", "what": f"recipe of {found['profile']}", "note": note} | found


PARTS = [
    Part("known-answer-bf16", 90, partial(known, "bf16")),
    Part("known-answer-fp16", 90, partial(known, "fp16")),
    Part("recipe-single-gpu", 150, recipe),
]
