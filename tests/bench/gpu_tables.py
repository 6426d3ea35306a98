"""The results of the GPU benchmark as Markdown, for tests/bench/README.md, and the aims beside them."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from tests.bench.gpu_attention import OPERATORS
from tests.bench.gpu_common import GB, Values

HEADS = (
    "| aim, on one H200 | measured | |\n|---|---|---|\n",
    "| what | format | compiled | dropout | micro batch | recompute | tokens/s | of the matrix rate "
    "| allocated, GB | held, GB | planner, GB | planner / held |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|\n",
)


def tables(folder: Path) -> str:
    """All tables that the results in a folder allow."""
    results = [json.loads(path.read_bytes()) for path in sorted(folder.glob("*.json"))]
    if not results:
        return f"{folder}: no results yet\n"
    devices = sorted({f"{result['device']}, torch {result['torch']}" for result in results})
    of: Callable[[str], list[Values]] = lambda kind: [result for result in results if result["kind"] == kind]
    parts = [f"{'; '.join(devices)}; {sum(result['seconds'] for result in results) / 60:.1f} minutes in all\n"]
    if trainings := sorted(of("training"), key=lambda result: (result["what"], result["part"])):
        parts += [HEADS[0] + "".join(aims(trainings)), HEADS[1] + "".join(map(_training, trainings))]
        parts += [f"{result['part']}: {line}\n" for result in trainings for line in _notes(result)]
    parts += [_kernels(result) for result in of("kernels")]
    parts += [_speeds(result) for kind in ("generation", "serving") for result in of(kind)]
    parts += [f"{result['what']}: {result['note']}\n" for result in of("note")]
    failed = [f"{path.stem}: {path.read_text(encoding='utf8').strip()}\n" for path in sorted(folder.glob("*.failed"))]
    return "\n".join(parts + failed)


def aims(trainings: Sequence[Values]) -> Iterable[str]:
    """A line for each aim: what was measured, and whether it is met. A model counts by its fastest run."""
    fastest: Callable[[str], float | None] = lambda model: max(
        (result["tokens_per_second"] for result in trainings if result["what"] == model), default=None
    )
    share = max((result["share"] for result in trainings if result["what"] == "GPT-2 XL"), default=None)
    off = [abs(_off(result)) for result in trainings if result["held"] and not result["compile"]]
    yield _aim("GPT-2 124M: at least 400,000 tokens/s", fastest("GPT-2 124M"), 400_000, "{:,.0f}")
    yield _aim("GPT-2 XL: at least 45,000 tokens/s", fastest("GPT-2 XL"), 45_000, "{:,.0f}")
    yield _aim("GPT-2 XL: at least 50 % of the matrix rate", share, 0.5, "{:.1%}")
    # the limit is an upper one: compare the negative numbers
    within = -max(off) if off else None
    yield _aim("planner within 10 % of the peak held, compiled runs left out", within, -0.1, "{:.1%} at worst")


def _aim(text: str, value: float | None, least: float, shown: str) -> str:
    if value is None:
        return f"| {text} | not measured | |\n"
    return f"| {text} | {shown.format(abs(value))} | {'met' if value >= least else 'missed'} |\n"


def _off(result: Values) -> float:
    return float(result["planned"] / result["held"] - 1)


def _training(result: Values) -> str:
    cells = [
        result["what"], result["dtype"], "yes" if result["compile"] else "no", result.get("dropout", ""),
        result["micro_batch"], result["recompute"], f"{result['tokens_per_second']:,.0f}", f"{result['share']:.1%}",
        *(f"{result[key] / GB:.1f}" for key in ("allocated", "held", "planned")),
        f"{1 + _off(result):.2f}" if result["held"] else "",
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |\n"


def _notes(result: Values) -> Iterable[str]:
    first, last = result["losses"][0], result["losses"][-1]
    nccl = f"NCCL {result['nccl']}" if result["nccl"] else "no NCCL"
    yield f"{nccl}; loss {first:.2f} → {last:.2f}; matrices {result['matrix_rate'] / 1e12:.3g} TFLOP/s"
    if "loss_scale" in result:
        yield f"{result['skipped_steps']} steps skipped, loss scale {result['loss_scale']:g} at the end"
    if result["out_of_memory_before"]:
        yield f"ran out of memory, although the planner let them: {', '.join(result['out_of_memory_before'])}"


def _kernels(result: Values) -> str:
    rates = ", ".join(f"{name} {rate / 1e12:.3g} TFLOP/s" for name, rate in result["matrix_rates"].items())
    lines = [f"Matrix products: {rates}; copy within memory {result['copy'] / 1e12:.2f} TB/s\n"]
    lines += ["| attention in | format | PyTorch's operators | kernels | one layer, ms |", "|---|---|---|---|---|"]
    for row in result["rows"]:
        operators = ", ".join(name.removeprefix(OPERATORS) for name in row["operators"])
        kernels = ", ".join(name[:60] for name in row["kernels"])
        lines.append(f"| {row['model']} | {row['dtype']} | {operators} | {kernels} | {row['seconds'] * 1e3:.2f} |")
    return "\n".join(lines) + "\n"


def _speeds(result: Values) -> str:
    memory = {key: f"{result[key]:.2f} GB" for key in ("allocated_gb", "held_gb") if result.get(key)}
    about = ", ".join(f"{size} {key.removesuffix('_gb')}" for key, size in memory.items())
    lines = [
        f"{result['what']}{f' ({about})' if about else ''}\n",
        "| side | at once | tokens/s | |",
        "|---|---|---|---|",
    ]
    for row in result["rows"]:
        peer = f"{row['ratio']:.2f} × `generate`" if "ratio" in row else ""
        equal = f", {row['equal']:.0%} of the tokens equal" if "equal" in row else ""
        side, count = row.get("side", "generation"), row.get("batch", row.get("texts"))
        lines.append(f"| {side} | {count} | {row['tokens_per_second']:,.0f} | {peer}{equal} |")
    return "\n".join(lines) + "\n"
