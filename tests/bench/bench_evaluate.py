"""Scores of the tiny profile's models on text that none of them is trained on: writes scores.json and README's table.

    python -m tests.bench.bench_evaluate

The same as `course evaluate MODEL... --data data/classified --minimal-pairs grammar`, with names for the models. It takes 20 s if the products are fresh.
tests/evaluation/test_scores.py compares README's table with scores.json.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_lib import paths
from course_lib.command_line.evaluate import GRAMMAR, TRIGRAM, open_model, read_pairs, trigram_model
from course_lib.evaluation import report
from course_lib.evaluation.windows import WindowSettings
from course_lib.gptsan import products as gptsan
from course_lib.pretrain import products as pretrain

SCORES = Path(__file__).with_name("scores.json")
README = paths.REPOSITORY / "README.md"
BEGIN, END = "<!-- scores: tests/bench/bench_evaluate.py -->", "<!-- end of scores -->"
NAMES = {
    "gpt2": "GPT-2 (chapters 4, 6 and 7)",
    "gptsan": "GPTSAN, the base of chapter 5",
    TRIGRAM: "character trigram, the baseline",
}


def measure() -> dict[str, Any]:
    """The scores of all models."""
    texts = sorted((paths.REPOSITORY / "data" / "classified").glob("*/*.txt"))
    inputs = report.Inputs.read(texts, read_pairs(GRAMMAR), WindowSettings(batch_size=32))
    folders = {
        "gpt2": pretrain.GPT2.path() / "model",
        "gptsan": gptsan.BASE.path() / "model",
    }
    results = [report.evaluate(name, open_model(folder), inputs) for name, folder in folders.items()]
    results.append(report.evaluate(TRIGRAM, trigram_model(), inputs))
    found = report.to_dict(inputs, results)
    return {"documents": inputs.characters, "pairs": len(inputs.pairs), "models": found["models"]}


def table(scores: Mapping[str, Any]) -> str:
    """README's table."""
    lines = ["| model of profile `tiny` | bits per character | minimal pairs [%] |", "|---|---|---|"]
    for row in scores["models"]:
        right = row["minimal_pairs"]["all"]
        share = f"{100 * right['accuracy']:.0f} ({100 * right['low']:.0f}–{100 * right['high']:.0f})"
        lines.append(f"| {NAMES[row['model']]} | {row['bits']['bits_per_character']:.2f} | {share} |")
    return "\n".join([*lines, "| chance | | 50 |"])


def in_readme(text: str, rows: str) -> str:
    """README's text with another table."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{rows}\n\n{END}{rest.split(END)[1]}"


def main() -> None:
    scores = measure()
    SCORES.write_text(json.dumps(scores, ensure_ascii=False, indent=1) + "\n", encoding="utf8")
    rows = table(scores)
    README.write_text(in_readme(README.read_text(encoding="utf8"), rows), encoding="utf8")
    print(rows)


if __name__ == "__main__":
    main()
