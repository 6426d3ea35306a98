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


def tokenizers(by_kind: Any, both: Any, line: Any, costs: Any) -> None:
    assert all(aozora < trigram for trigram, aozora in by_kind.values()), "it beats the trigram on all four"
    assert min(range(4), key=[aozora for _, aozora in by_kind.values()].__getitem__) == 2, "tales cost it least"
    per_character, per_token = (costs(model, line) for model in both.values())
    assert sum(per_token) < sum(per_character)


def by_hand(
    log: Any, verdicts: Any, parrot_log: Any, source: Any, right: Any, back: Any, without: Any, points: Any, authors: Any,
) -> None:  # fmt: skip
    held_out = [row["loss"] for row in log if row["kind"] == "eval"]
    assert held_out[-1] < 0.5 < held_out[0], "it learns"
    shares = [int("".join(filter(str.isdigit, verdicts[step].partition("%")[0]))) for step in (0, 50, 200, 500)]
    assert shares[:2] == [0, 0] and 0 < shares[2] < 25 and shares[3] > 30, "noise, words, phrases, sentences"
    read, unread = ([row["loss"] for row in parrot_log if row["kind"] == kind] for kind in ("train", "eval"))
    assert read[-1] < source < 3 < unread[-1] and unread[-1] > min(unread) + 0.5, "it has learned eight documents"

    assert 0.958 < mean(right) < 0.966, "the learner's classes judge as the card says"
    block, head = divmod(back.argmax().item(), back.shape[1])
    costs = {divmod(place, without.shape[1]): cost for place, cost in enumerate(without.flatten().tolist())}
    first, second, third, fourth, *_ = sorted(costs, key=costs.__getitem__, reverse=True)
    assert back[block, head] > 0.4 and (block, head) in (first, second, third), "the head that looks back matters"
    assert min(first, second, third)[0] < block, "with heads before it"
    assert costs[third] > costs[fourth] + 1, "and these three alone"

    repeated, bits = ({setting: pair[i] for setting, pair in points.items()} for i in (0, 1))
    assert repeated[0.4, 1.0] > 0.2 > repeated[0.7, 1.0] > repeated[1.0, 1.0], "the colder, the more circles"
    assert bits[1.3, 1.0] > authors[1] + 1 and bits[0.7, 1.0] < authors[1] - 1, "too wild, too safe"
    assert min(bits, key=lambda setting: abs(bits[setting] - authors[1])) == (1.0, 1.0), "1 is nearest to the authors"
    assert all(bits[t, 0.9] < bits[t, 1.0] for t in (0.7, 1.0, 1.3)), "top-p cuts off the wild side"


def llama(judged: Any, runs: Any) -> None:
    means = {name: mean(losses) for name, losses in judged.items()}
    assert means["Llama, AdamW"] < means["no positions, AdamW"] < means["table, AdamW"], "rotary positions beat a table"
    muon = [means.pop("GPT-2, Muon"), means.pop("Llama, Muon")]
    assert max(muon) < min(means.values()) and abs(muon[0] - muon[1]) < 0.2, "Muon helps both, GPT-2 more"
    parts = [part for by_part in runs.values() for part in by_part.values()]
    assert all(len(losses) == 3 for part in parts for losses in part.values()), "three runs choose, three others judge"


def zero2(
    gaps: Any, before: Any, start: Any, after: Any, history: Any, own_source: Any, ladder: Any, written: Any, table: Any,
    alone: Any, behind: Any, yours: Any, sent_early: Any, logs: Any,
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
    adamw, muon = ([row["loss"] for row in rows if row["kind"] == "eval"] for rows in logs.values())
    assert muon[2] < adamw[-1], "Muon is below AdamW's last loss after 60 steps"


def gptsan(
    losses: Any, shares: Any, loss: Any, others: Any, early: Any, seen: Any, followed: Any, as_words: Any, rows: Any
) -> None:
    assert mean(losses[-10:]) < losses[0] / 4, "it learns"
    assert max(row[1] for row in shares) > 0.1 > max(row[30] for row in shares), "the slot is read at the beginning"
    assert (others > loss.diagonal()).all(), "the true class costs least"
    assert min(early) > 0.6, "the wrong class costs at the beginning"
    _, *told = seen  # behind the base's texts
    assert mean(ok for name in told for _, ok in seen[name]) < 0.6, "most texts break"
    assert min(map(mean, followed.values())) > 0.85, "it writes the genre that it is told, by the spout or by words"
    assert min(as_words) > 0.5, "words are stronger than the spout"
    *gpt2, base = rows
    near = min(gpt2, key=lambda row: abs(row["above"] - base["above"]))
    assert abs(near["clean"] - base["clean"]) < 0.1, "at the same distance from the source, as many texts are clean"


def prefix(
    losses: Any, logged: Any, answered: Any, titles: Any, frequent: Any, correct: Any, results: Any, differences: Any,
    few_shot: Any, costs: Any, falling: Any,
) -> None:  # fmt: skip
    assert abs(mean(losses[10:20]) - logged[20]) < 1e-3, "the loop's losses are the product's"
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
    assert max(costs["ours"], costs["dowa"]) < min(costs["none"], costs["tantei"]), "both have learned fairy tales"
    assert falling[-1] < falling[0], "it learns"


def rewards(before: Any, after: Any, source: Any) -> None:
    rights, costs = zip(before, after, strict=True)
    assert rights[1] > rights[0] - 26 and costs[1] > costs[0] > source, "a short run costs bits and breaks nothing"


def conversion(
    change: Any, replies: Any, right: Any, unseen: Any, measured: Any, order: Any, per_step: Any, costs: Any
) -> None:
    assert change > 5, "one damaged matrix changes everything behind it"
    assert replies[None][0][0].continuation == "", "the bare model ends the complete story at once"
    assert not replies[0][1][0].continuation.endswith("ました。"), "task 0 makes the sentence plain"
    assert right > 0.9 * len(unseen), "task 1 knows the titles"
    assert measured["fp32"][1] == 0
    assert {*order[:6]} == {"dowa", "tantei"}, "the pieces of two writers alternate"
    assert per_step[1] < per_step[8] < 8 * per_step[1], "a slot is cheap, but not free"
    exact, bf16, fp32, int8 = costs.values()
    assert abs(fp32 - exact) < 0.001 and abs(bf16 - exact) < 0.01 and abs(int8 - exact) < 0.03


OF: dict[str, Callable[..., None]] = {
    "03_tokenizers": tokenizers,
    "04_gpt2_by_hand": by_hand,
    "04_gpt2_to_llama": llama,
    "04_gpt2_zero2_pretraining": zero2,
    "05_gptsan_extra_stage": gptsan,
    "06_prefix_tuning": prefix,
    "06_rewards": rewards,
    "07_fastertransformer_conversion": conversion,
}


def cell(claims: Callable[..., None]) -> nbformat.NotebookNode:
    """A code cell that runs the assertions on the notebook's variables, and prints nothing."""
    source = "from statistics import mean\nfrom typing import Any\n\n" + inspect.getsource(claims)
    return nbformat.v4.new_code_cell(f"{source}\n{claims.__name__}({', '.join(inspect.signature(claims).parameters)})")
