"""Held-out loss of the tiny GPT-2 for several seeds: its spread is the measure for every difference that chapter 4 states.

    python -m tests.bench.seeds_gpt2 [--seeds 1024 1 2]

Seeds change the initial weights and the order of the data; the tokens are the product of chapter 4 (built if missing). About two
minutes a seed on two cores.
"""

from pathlib import Path

from course_lib.pretrain import products
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.settings import config
from course_lib.subword.products import BPE

from tests.bench import seeds


def gpt2(seed: int, place: Path) -> dict[str, float]:
    settings = config.load(PretrainConfig, "gpt2-tiny.yaml")
    settings = products.with_products(settings, products.TOKENS.path(), BPE.path())
    return {"held-out loss [nats]": seeds.held_out_loss(seeds.trained(Gpt2, settings, seed, place))}


if __name__ == "__main__":
    seeds.main(__doc__, gpt2)
