"""The numbers of notebook 06 that its own cells measure once, over several seeds of the tiny profile: the products `plain` and `title`.

    python -m tests.bench.seeds_prefix [--seeds 1024 1 2]

A seed decides the initial weights of the encoder and the order of the samples; the base and the held-out samples stay the same. About a
minute a seed on one core.
"""

from pathlib import Path

from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.prefix import data, products
from course_lib.prefix.export import export
from course_lib.prefix.files import read
from course_lib.prefix.run import PrefixRun
from course_lib.pretrain import text_codec

from tests.bench import seeds


def prefix(seed: int, folder: Path) -> dict[str, float]:
    """Held-out losses, and the exact answers with and without the prefix."""
    products.PAIRS.path()
    base, found = products.base().path() / "model", {}
    generator, codec = Generator(base, text_codec.load), text_codec.load(base)
    decode = codec.decode
    for name in products.task_settings():
        settings = products.run_settings(name)
        run = seeds.trained(PrefixRun, settings, seed, folder / name)
        export(run.folder, folder / f"{name}.safetensors")
        values = read(folder / f"{name}.safetensors")
        found[f"{name}: held-out loss [nats]"] = seeds.held_out_loss(run)
        held_out = data.load(settings.data, codec).held_out
        greedy = GenerateConfig(strategy="greedy", max_new_tokens=48)
        prompts, wanted = ([decode(getattr(pair, part)) for pair in held_out] for part in ("prompt", "target"))
        for told, how in ((name, [values] * len(held_out)), (f"{name}, without prefix", [None] * len(held_out))):
            rows = generator.generate(prompts, greedy, how)
            right = sum(row[0].continuation.strip() == target for row, target in zip(rows, wanted, strict=True))
            found[f"{told}: answers right of {len(wanted)}"] = right
    return found


if __name__ == "__main__":
    seeds.main(__doc__, prefix)
