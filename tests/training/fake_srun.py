"""A stand-in for Slurm's `srun` on this machine, as far as starter.py uses it, with the words of Slurm 22.05.

It starts the tasks of nodeA and nodeB, puts their numbers before their lines, gives all of them its standard input, and
when one fails, it says so and terminates the others. `python -m tests.bench.several_nodes slurm` takes a real one.
"""

import os
import subprocess
import sys
import threading
from typing import IO

NODES = ("nodeA", "nodeB")


def main() -> None:
    options = dict(word[2:].split("=") for word in sys.argv[1:] if word.startswith("--") and "=" in word)
    command = sys.argv[sys.argv.index("sh") :]
    tasks, on_node = int(options["ntasks"]), int(options["ntasks-per-node"])
    processes = []
    for task in range(tasks):
        variables = {"SLURM_PROCID": str(task), "SLURM_LOCALID": str(task % on_node), "NODE": NODES[task // on_node]}
        process = subprocess.Popen(
            command, env=os.environ | variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        processes.append(process)
        for pipe, target in ((process.stdout, 1), (process.stderr, 2)):
            assert pipe
            threading.Thread(target=label, args=(task, pipe, target)).start()
    threading.Thread(target=forward, args=(processes,), daemon=True).start()
    ended: set[int] = set()
    while len(ended) < tasks:
        for task, process in enumerate(processes):
            if task in ended or process.poll() is None:
                continue
            ended.add(task)
            if code := process.returncode:
                how = {-9: "Killed", -15: "Terminated"}.get(code, f"Exited with exit code {code}")
                os.write(2, f"srun: error: {NODES[task // on_node]}: task {task}: {how}\n".encode())
                for other in processes:
                    other.terminate()
    sys.exit(max(process.returncode & 127 for process in processes))


def label(task: int, pipe: IO[bytes], target: int) -> None:
    for line in pipe:
        os.write(target, f"{task}: ".encode() + line)


def forward(processes: "list[subprocess.Popen[bytes]]") -> None:
    while data := os.read(0, 100):
        for process in processes:
            assert process.stdin
            process.stdin.write(data)
            process.stdin.flush()
    for process in processes:
        assert process.stdin
        process.stdin.close()


if __name__ == "__main__":
    main()
