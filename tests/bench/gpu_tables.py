"""The results of the GPU benchmark as Markdown, for tests/bench/README.md, and the aims beside them."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.bench.gpu_attention import OPERATORS
from tests.bench.gpu_common import GB, Values

Columns = dict[str, Callable[[Values], object]]

TRAININGS: Columns = {
    "what": lambda row: row["what"],
    "format": lambda row: row["dtype"],
    "compiled": lambda row: "yes" if row["compile"] else "no",
    "dropout": lambda row: row.get("dropout", ""),
    "micro batch": lambda row: row["micro_batch"],
    "recompute": lambda row: row["recompute"],
    "tokens/s": lambda row: f"{row['tokens_per_second']:,.0f}",
    "of the matrix rate": lambda row: f"{row['share']:.1%}",
    "allocated, GB": lambda row: f"{row['allocated'] / GB:.1f}",
    "held, GB": lambda row: f"{row['held'] / GB:.1f}",
    "planner, GB": lambda row: f"{row['planned'] / GB:.1f}",
    "planner / held": lambda row: f"{row['planned'] / row['held']:.2f}" if row["held"] else "",
    "loss": lambda row: f"{row['losses'][0]:.2f} → {row['losses'][-1]:.2f}",
    "skipped steps": lambda row: row.get("skipped_steps", ""),
    "out of memory before": lambda row: ", ".join(row["out_of_memory_before"]),
}
KERNELS: Columns = {
    "attention in": lambda row: row["model"],
    "format": lambda row: row["dtype"],
    "PyTorch's operators": lambda row: ", ".join(name.removeprefix(OPERATORS) for name in row["operators"]),
    "kernels": lambda row: ", ".join(name[:60] for name in row["kernels"]),
    "one layer, ms": lambda row: f"{row['seconds'] * 1e3:.2f}",
}
SPEEDS: Columns = {
    "side": lambda row: row.get("side", "generation"),
    "at once": lambda row: row.get("batch", row.get("texts")),
    "tokens/s": lambda row: f"{row['tokens_per_second']:,.0f}",
    "× `generate`": lambda row: f"{row['ratio']:.2f}" if "ratio" in row else "",
    "tokens equal": lambda row: f"{row['equal']:.0%}" if "equal" in row else "",
}


def tables(folder: Path) -> str:
    """All tables that the results in a folder allow."""
    results = [json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))]
    if not results:
        return f"{folder}: no results yet\n"
    devices = sorted({f"{result['device']}, torch {result['torch']}" for result in results})
    parts = [f"{'; '.join(devices)}; {sum(result['seconds'] for result in results) / 60:.1f} minutes in all\n"]
    if trainings := [result for result in results if result["kind"] == "training"]:
        trainings.sort(key=lambda result: (result["what"], result["part"]))
        parts += ["".join(aims(trainings)), table(TRAININGS, trainings)]
    for result in results:
        if result["kind"] == "kernels":
            rates = ", ".join(f"{name} {rate / 1e12:.3g} TFLOP/s" for name, rate in result["matrix_rates"].items())
            parts += [f"{rates}; copy within memory {result['copy'] / 1e12:.2f} TB/s\n", table(KERNELS, result["rows"])]
        elif result["kind"] in ("generation", "serving"):
            memory = [f"{result[key]:.2f} GB {key[:-3]}" for key in ("allocated_gb", "held_gb") if result.get(key)]
            parts += [", ".join([result["what"], *memory]) + "\n", table(SPEEDS, result["rows"])]
        elif result["kind"] == "note":
            parts.append(f"{result['what']}: {result['note']}\n")
    parts += [f"{path.stem}: {path.read_text(encoding='utf8').strip()}\n" for path in sorted(folder.glob("*.failed"))]
    return "\n".join(parts)


def table(columns: Columns, rows: Sequence[Values]) -> str:
    """Rows as a table of Markdown."""
    lines = [[*columns], ["---"] * len(columns), *([str(cell(row)) for cell in columns.values()] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def aims(trainings: Sequence[Values]) -> Iterable[str]:
    """A line for each aim on one H200: what was measured, and whether it is met. A model counts by its fastest run."""
    of: Callable[[str, str], list[float]] = lambda what, key: [each[key] for each in trainings if each["what"] == what]
    measured = [each for each in trainings if each["held"] and not each["compile"]]
    off = [abs(each["planned"] / each["held"] - 1) for each in measured]
    speed, share = of("GPT-2 XL", "tokens_per_second"), of("GPT-2 XL", "share")
    small = of("GPT-2 124M", "share")
    for text, values, shown, sign, bound in (
        ("GPT-2 124M: at least 400,000 tokens/s", of("GPT-2 124M", "tokens_per_second"), ",.0f", 1, 400_000),
        ("GPT-2 124M: at least 50 % of the matrix rate", small, ".1%", 1, 0.5),
        ("GPT-2 XL: at least 45,000 tokens/s", speed, ",.0f", 1, 45_000),
        ("GPT-2 XL: at least 50 % of the matrix rate", share, ".1%", 1, 0.5),
        ("planner at most 10 % off the peak held, compiled runs left out", off, ".1%", -1, 0.1),
    ):
        met = bool(values) and sign * max(values) >= sign * bound
        yield f"* {text}: " + (f"{max(values):{shown}}, {'met' if met else 'missed'}\n" if values else "not measured\n")
