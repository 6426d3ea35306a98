"""The parts of the GPU benchmark in one command, on one H100 or H200.

    python -m tests.bench.gpu_all -o DIR                        # all parts; a part with its JSON file in DIR is skipped
    python -m tests.bench.gpu_all -o DIR --set 2 --until 570    # those of a set, in its order; starts no part that could end later than that [s]
    python -m tests.bench.gpu_all -o DIR --only gpt2-xl         # this part; repeatable
    python -m tests.bench.gpu_all -o DIR --cpu                  # tiny shapes on CPU, to see that the path works

Each part is a process of its own, with its own time limit, and DIR/PART.json appears whole or not at all. A part that
fails or takes too long leaves its reason in DIR/PART.failed, and is left out from then on unless it is named with
--only. DIR/PART.log has all output. The tables are also written to DIR/tables.md. Exit code: 0 when all parts are
measured, 1 if one failed, 3 if parts are left for another call.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, time

import psutil
import torch
from course_lib.errors import CourseError
from course_lib.files import atomic_write

from tests.bench import gpu_attention, gpu_gptsan, gpu_known, gpu_prefix, gpu_pretrain, gpu_serving, gpu_tables
from tests.bench.gpu_common import Bench, Late, Part, time_limit

PARTS = {
    part.name: part
    for part in (
        *gpu_attention.PARTS, *gpu_pretrain.PARTS, *gpu_gptsan.PARTS, *gpu_prefix.PARTS, *gpu_known.PARTS,
        *gpu_serving.PARTS,
    )
}  # fmt: skip
# Parts for a card that is lent for LENT seconds, of which OTHER go to its start, the transfers and the installation.
# Set 1 is the training of gpt2-aozora (gpu_aozora.py), which takes TRAINING, and what fits behind it.
SETS = {
    1: ("gpt2-124m-compile",),
    2: (
        "gpt2-124m-compile", "known-answer-bf16", "known-answer-fp16", "gpt2-345m", "gpt2-345m-fp16", "gptsan-extra",
        "prefix-3.6b-fp16", "reader", "triton",
    ),
}  # fmt: skip
LENT, OTHER, TRAINING = 15 * 60, 90, 450
GRACE = 40  # for a part to end after its own limit, its ranks included [s]
LEFT = 3  # exit code


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--only", action="append", choices=[*PARTS], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--set", type=int, choices=SETS, help="the parts of a set")
    parser.add_argument("--until", type=float, default=float("inf"), metavar="SECONDS", help="from now")
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--here", choices=[*PARTS], help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    folder: Path = options.output.absolute()
    if options.here:
        part = PARTS[options.here]
        left = limit(part, options.cpu) - (time() - psutil.Process().create_time())
        return measure(part, folder, options.cpu, left)
    if not options.cpu and not torch.cuda.is_available():
        parser.error("no GPU here; --cpu tries the path")
    folder.mkdir(parents=True, exist_ok=True)
    wanted = options.only or SETS.get(options.set, [*PARTS])
    run(folder, wanted, bool(options.only), monotonic() + options.until, options.cpu)
    text = gpu_tables.tables(folder)
    (folder / "tables.md").write_text(text, encoding="utf8")
    print(text)
    if any((folder / f"{name}.failed").exists() for name in wanted):
        return 1
    return LEFT if any(not (folder / f"{name}.json").exists() for name in wanted) else 0


def limit(part: Part, cpu: bool) -> int:
    """Seconds that a part may take; on CPU, whose cores may have other work, ten times as many."""
    return part.seconds * (10 if cpu else 1)


def run(folder: Path, wanted: Sequence[str], again: bool, end: float, cpu: bool) -> None:
    """Starts each part that has no result yet and fits into the time that is left; `again`, also one that failed."""
    for part in [PARTS[name] for name in wanted]:
        failed = folder / f"{part.name}.failed"
        if (folder / f"{part.name}.json").exists() or (failed.exists() and not again):
            continue
        if monotonic() + part.seconds + GRACE > end:
            print(f"{part.name}: no time left, it may take {part.seconds} s", flush=True)
            continue
        failed.unlink(missing_ok=True)
        print(f"{part.name}: at most {part.seconds} s", flush=True)
        started = monotonic()
        _start(part, folder, cpu)
        if not (folder / f"{part.name}.json").exists() and not failed.exists():
            failed.write_text("ended without a word\n")
        what = failed.read_text().strip() if failed.exists() else "done"
        print(f"{part.name}: {what}, {monotonic() - started:.0f} s", flush=True)


def _start(part: Part, folder: Path, cpu: bool) -> None:
    """Runs a part in a process of its own; one that does not end by itself is killed with all that it started."""
    command = [sys.executable, "-m", "tests.bench.gpu_all", "-o", str(folder), "--here", part.name]
    with open(folder / f"{part.name}.log", "wb") as log:
        process = subprocess.Popen(
            [*command, *(["--cpu"] if cpu else [])], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            process.wait(limit(part, cpu) + GRACE)
        except subprocess.TimeoutExpired:
            (folder / f"{part.name}.failed").write_text(f"did not end within {part.seconds} s\n")
        finally:
            _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends a part that still runs, first with SIGTERM, and then all that it started, ranks included."""
    if process.poll() is not None:
        return
    family = psutil.Process(process.pid).children(recursive=True)
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(20)
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    process.kill()
    process.wait()


def measure(part: Part, folder: Path, cpu: bool, seconds: float) -> int:
    """Measures a part in this process, within some seconds, and writes its result, or the reason that there is none."""
    started = monotonic()
    try:
        with time_limit(seconds), tempfile.TemporaryDirectory() as temporary:
            values = part.run(Bench(Path(temporary), cpu))
    except Late:
        why = f"took longer than {part.seconds} s"
    except CourseError as error:
        why = str(error)
    except Exception as error:
        traceback.print_exc()
        why = f"{type(error).__name__}: {error}"
    else:
        about = {
            "part": part.name,
            "device": "CPU" if cpu else torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "seconds": monotonic() - started,
        }
        with atomic_write(folder / f"{part.name}.json") as file:
            file.write(json.dumps(about | values, indent=1, ensure_ascii=False).encode() + b"\n")
        return 0
    (folder / f"{part.name}.failed").write_text(why + "\n", encoding="utf8")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
