"""The numbers of notebook 06 that its own cells measure once, over several seeds of the tiny profile: the products `smile` and `plain`.

    python -m tests.bench.seeds_prefix [--seeds 1024 1 2]

A seed decides the initial weights of the encoder and the order of the samples; the base and the held-out samples stay the same. About a
minute a seed on one core.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.prefix import data, products
from course_lib.prefix.export import export
from course_lib.prefix.files import read
from course_lib.prefix.measure import finished_lines
from course_lib.prefix.task import PrefixTask
from course_lib.pretrain import text_codec
from course_lib.pretrain.text_codec import TextCodec
from course_lib.training.launch import train


def measures(seed: int, place: Path, generator: Generator, codec: TextCodec) -> dict[str, float]:
    """Held-out losses, the share of generated lines that end in 😃, and the exact matches of `plain`."""
    found = {}
    for name in products.task_settings():
        settings = products.run_settings(name)
        engine = replace(settings.engine, seed=seed, output_dir=place / name)
        run = train(PrefixTask(replace(settings, engine=engine)), on_message=lambda line: None)
        export(run.folder, place / f"{name}.safetensors")
        prefix = read(place / f"{name}.safetensors")
        found[f"{name}: held-out loss [nats]"] = [entry["loss"] for entry in run.log if entry["kind"] == "eval"][-1]
        held_out = data.load(settings.data, codec).held_out
        decode = codec.decode
        if name == "smile":
            prompts = [line[:4] for sample in held_out for line in decode(sample.target).split("\n")][:20]
            rows = generator.generate(prompts, GenerateConfig(max_new_tokens=48, seed=6), [prefix] * len(prompts))
            lines = [line for row in rows for line in finished_lines(row[0].text)]
            found["smile: lines that end in 😃"] = mean(line.endswith("😃") for line in lines)
        else:
            greedy = GenerateConfig(strategy="greedy", max_new_tokens=24)
            rows = generator.generate([decode(pair.prompt) for pair in held_out], greedy, [prefix] * len(held_out))
            right = [
                row[0].continuation.strip() == decode(pair.target) for row, pair in zip(rows, held_out, strict=True)
            ]
            found[f"{name}: answers right of {len(right)}"] = sum(right)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1024, 1, 2])
    seeds = parser.parse_args().seeds
    base = products.BASE.path() / "model"
    generator, codec = Generator(base, text_codec.load), text_codec.load(base)
    runs = []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as folder:
            runs.append(measures(seed, Path(folder), generator, codec))
        print(f"seed {seed}:", {name: round(value, 3) for name, value in runs[-1].items()}, flush=True)
    for name in runs[0]:
        values = [run[name] for run in runs]
        print(f"{name}: {mean(values):.3f} ± {stdev(values) if len(values) > 1 else 0:.3f}")


if __name__ == "__main__":
    main()
