"""What the notebooks' sentences claim of the models that they train.

Such a model's texts and numbers differ between processors, so nbval does not compare them. These assertions hold on all
of them. A function's arguments are variables of its notebook, as they stand at the end; `cell` makes a code cell of it.
Entries that are printed have Japanese names in the Japanese edition, so they are taken by their order.
"""

import inspect
from collections.abc import Callable
from statistics import mean
from typing import Any

import nbformat.v4


def tokenizers(same_text: Any, same_steps: Any) -> None:
    text, steps = (
        {name: [row.bits_per_character for row in rows] for name, rows in judged.items()}
        for judged in (same_text, same_steps)
    )
    raw = [value for values in steps.values() for value in values]
    assert max(text["bpe"]) < min(raw), "each model of `bpe` is better than each of the raw tokenizers"
    assert mean(text["unigram"]) > mean(text["bpe"]) + 0.5, "segmented Unigram needs far more"


def by_hand(
    log: Any, on_names: Any, without: Any, this: Any, name_chance: Any, ways: Any, codec: Any, points: Any, nucleus: Any
) -> None:
    held_out = [row["loss"] for row in log if row["kind"] == "eval"]
    assert held_out[-1] < 0.5 < held_out[0], "it learns"

    assert on_names[0].max() < 0.2 and on_names.max() > 0.8, "a head of the last block reads the names"
    costs = {place: name_chance() - chance for place, chance in without.items()}
    costs[divmod(on_names.argmax().item(), on_names.shape[1])] = name_chance() - this
    worst = max(costs, key=costs.__getitem__)
    assert costs[worst] > 0.15 and on_names[worst] > 0.5, "a head that reads the names is the one that matters"

    snow = codec.tokenizer.token_to_id("雪")
    plain, cold, hot, top_k, top_p = (chances[0, snow].item() for chances in ways.values())
    assert cold < plain < 0.083 and plain < hot, "snow is rarer than in the world"
    assert top_k == top_p == 0, "what is rare and true is lost"

    facts, variety = ({t: value[i] for t, value in points.items()} for i in (0, 1))
    assert facts[1.0] > facts[1.2] and facts[1.0] > 0.4, "fewer facts hold above temperature 1"
    assert variety[0.2] < variety[0.8] < variety[1.2], "variety shrinks"
    assert nucleus[1] > variety[0.6], "top-p keeps more variety"


def zero2(
    gaps: Any, before: Any, start: Any, after: Any, history: Any, own_source: Any, ladder: Any, written: Any, table: Any,
    alone: Any, behind: Any, yours: Any, sent_early: Any,
) -> None:  # fmt: skip
    assert len(gaps) == 20 and max(gaps) < 1e-5, "your losses are DeepSpeed's"
    assert start == 5 and 6 <= before[-1]["step"] < 20 == after[-1]["step"], "killed and resumed"
    held_out = [row["loss"] for row in history if row["kind"] == "eval"]
    assert abs(held_out[-1] - own_source) < 0.006, "the curve ends nearer to the source than documents alone"
    *_, gpt2, source = rungs = list(ladder.values())
    assert rungs == sorted(rungs, reverse=True) and gpt2 - source < 0.02, "every rung is lower"
    found = table(written)
    assert found["sentences of the world"] > 0.95
    assert 0.5 < found["without contradiction"] < 0.9, "nearly right is not right"
    assert mean(behind) > mean(alone) + 3, "it has never seen another document before one"
    assert abs(sent_early["losses"][-1] - yours[0]["losses"][-1]) < 1e-5
    assert sent_early["gradients"] < yours[0]["gradients"] / 2, "gradients that are sent early are not held"


def gptsan(losses: Any, shares: Any, loss: Any, others: Any, more: Any, seen: Any, clean: Any) -> None:
    assert mean(losses[-10:]) < losses[0] / 4, "it learns"
    assert max(row[1] for row in shares) > 0.1 > max(row[30] for row in shares), "the slot is read at the beginning"
    assert (others > loss.diagonal()).all(), "the true class costs least"
    assert more[1] > 0.8 * more[-1], "the wrong class costs at the beginning"
    _, *told = seen  # behind the base's texts
    obeys = [verdict.genre == name for name in told for verdict, _ in seen[name]]
    assert mean(obeys) > 0.85, "it writes the genre that it is told"
    assert mean(ok for name in told for ok in clean[name]) < 0.6, "most texts break"


def prefix(
    losses: Any, logged: Any, answered: Any, titles: Any, frequent: Any, correct: Any, results: Any, differences: Any,
    few_shot: Any, costs: Any, falling: Any,
) -> None:  # fmt: skip
    assert abs(mean(losses[10:20]) - logged[20]) < 1e-3, "the loop's losses are DeepSpeed's"
    plain_base, plain_prefix, title_base, title_prefix, our_rows, examples = map(mean, answered.values())
    assert max(plain_base, title_base) < 0.05 and min(plain_prefix, title_prefix, our_rows) > 0.9, "the tasks work"
    assert examples < 0.3, "a prompt with examples does not replace training"
    assert titles.count(frequent) < 10, "no title can be guessed"
    assert sum(correct) < 10 and len(correct) == 200, "sentences from outside the world are not for this base"
    rows, low_rank, whole = ([mean(run) for run in runs] for runs in results.values())
    assert min(whole) > max(rows + low_rank), "all weights are best"
    _, *lows = (low for _, low, _ in differences.values())  # behind LoRA − prefix
    assert min(lows) > 0, f"all weights are best beyond chance: {differences}"
    assert sum(few_shot) < 10, "nor does the real model answer behind examples"
    assert max(costs["ours"], costs["dowa"]) < costs["none"] < costs["tantei"], "each has learned its genre"
    assert falling[-1] < falling[0], "it learns"


def conversion(change: Any, replies: Any, right: Any, unseen: Any, measured: Any) -> None:
    assert change > 5, "one damaged matrix changes everything behind it"
    assert replies[None][0][0].continuation == "", "the bare model ends the complete story at once"
    assert not replies[0][1][0].continuation.endswith("ました。"), "task 0 makes the sentence plain"
    assert right > 0.9 * len(unseen), "task 1 knows the titles"
    assert measured["fp32"][1] == 0


OF: dict[str, Callable[..., None]] = {
    "03_tokenizers": tokenizers,
    "04_gpt2_by_hand": by_hand,
    "04_gpt2_zero2_pretraining": zero2,
    "05_gptsan_extra_stage": gptsan,
    "06_prefix_tuning": prefix,
    "07_fastertransformer_conversion": conversion,
}


def cell(claims: Callable[..., None]) -> nbformat.NotebookNode:
    """A code cell that runs the assertions on the notebook's variables, and prints nothing."""
    source = "from statistics import mean\nfrom typing import Any\n\n" + inspect.getsource(claims)
    return nbformat.v4.new_code_cell(f"{source}\n{claims.__name__}({', '.join(inspect.signature(claims).parameters)})")
