"""The tiny GPT-2 for several seeds: its distance to the source, and what it writes.

    python -m tests.bench.seeds_gpt2 [--seeds 1024 1 2]

Seeds change the initial weights and the order of the data; the tokens are the product of chapter 4 (built if missing).
About three minutes a seed on two cores.
"""

from pathlib import Path
from statistics import mean

from course_lib.pretrain import products
from course_lib.pretrain.export import export
from course_lib.pretrain.gpt2 import Gpt2

from tests.bench import known_answer, seeds

SHARES = ("sentences of the world", "without contradiction", "copied")


def gpt2(seed: int, folder: Path) -> dict[str, float]:
    run = seeds.trained(Gpt2, products.run_settings(), seed, folder / "run")
    export(run.folder, folder / "model")
    found = known_answer.measure(folder / "model")
    return {
        "held-out loss [nats]": seeds.held_out_loss(run),
        "seconds a step": mean(entry["batch_cost"] for entry in run.log if entry["kind"] == "train"),
        "source [bits per character]": found["source"],
        "model": found["model"],
        "trigram": found["trigram"],
        **{name: found["written"][name] for name in SHARES},
    }


if __name__ == "__main__":
    seeds.main(__doc__, gpt2)
