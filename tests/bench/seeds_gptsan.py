"""The numbers of notebook 05 that its own cells measure once, over several seeds of the tiny profile.

    python -m tests.bench.seeds_gptsan [--seeds 1024 1 2] [--part stage|balance|all]

`stage`: the extra stage. A seed decides the new weights, which documents are held out, and the order of the examples. Printed are what
naming the best wrong class costs, what is gained over the base.

`balance`: the base with and without the routers' balance loss. Printed are the held-out loss and how even the experts are used.

Vocabulary and examples are the products of chapter 5 (built if missing). About 70 s a seed for `stage` and 3 minutes for `balance` on two
cores.
"""

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import torch
from course_lib.gptsan import products
from course_lib.gptsan.config import GptsanConfig
from course_lib.gptsan.examples import Examples
from course_lib.gptsan.export import export
from course_lib.gptsan.extra_stage import IGNORE, add_extra_stage
from course_lib.gptsan.generate import GPTSANGenerator
from course_lib.gptsan.measure import mean_loss, router_logits
from course_lib.gptsan.task import Gptsan
from course_lib.training.launch import train

CLASSES = ("recipe", "weather", "match", "tale")


def trained(settings: GptsanConfig, seed: int, place: Path) -> Path:
    """The model of a run with this seed, as a folder."""
    engine = replace(settings.engine, seed=seed, output_dir=place / "run", save_steps=settings.engine.max_steps or 500)
    run = train(Gptsan(replace(settings, engine=engine)), on_message=lambda line: None)
    export(run.folder, place / "model")
    return place / "model"


def stage(seed: int, place: Path) -> dict[str, float]:
    """Measures of one extra stage."""
    base = products.BASE.path() / "model"
    add_extra_stage(base, place / "stage", 1, seed)
    settings = products.with_data(products.tuned_settings(), products.CLASSES.path())
    settings = replace(
        settings, model=replace(settings.model, checkpoint=place / "stage", ignore=place / "stage" / IGNORE)
    )
    writer, before = GPTSANGenerator.open(trained(settings, seed, place)), GPTSANGenerator.open(base)
    held_out = Examples(products.CLASSES.path()).split(settings.data.held_out, seed)[1]
    vectors = torch.eye(writer.config.d_spout)
    found = {}
    for label, name in enumerate(CLASSES):
        texts = [example for example in held_out if example["i"] == label]
        losses = [mean_loss(writer.model, texts, vectors[told]) for told in range(len(CLASSES))]
        right = losses.pop(label)
        found[f"{name}: best wrong class costs"] = min(losses) - right
        found[f"{name}: gain over the base"] = mean_loss(before.model, texts) - right
    return found


def balance(seed: int, place: Path) -> dict[str, float]:
    """Measures of a base with and one without the balance loss."""
    found = {}
    settings = products.with_data(products.base_settings(), products.CORPUS.path(), products.VOCABULARY.path())
    for name, factor in (("with", settings.loss.router_balance), ("without", 0.0)):
        chosen = replace(settings, loss=replace(settings.loss, router_balance=factor))
        model = GPTSANGenerator.open(trained(chosen, seed, place / name)).model
        held_out = list(Examples(products.CORPUS.path()).split(settings.data.held_out, seed)[1])
        logits = router_logits(model, held_out)
        experts = logits.shape[-1]
        load = torch.nn.functional.one_hot(logits.argmax(-1), experts).float().mean(1)
        found[f"{name}: held-out loss"] = mean_loss(model, held_out)
        found[f"{name}: balance loss"] = float((experts * (load * logits.softmax(-1).mean(1)).sum(-1)).mean())
        found[f"{name}: largest share of an expert"] = float(load.max())
        found[f"{name}: smallest share of an expert"] = float(load.min())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1024, 1, 2])
    parser.add_argument("--part", choices=("stage", "balance", "all"), default="all")
    chosen = parser.parse_args()
    parts = [part for part in (stage, balance) if chosen.part in (part.__name__, "all")]
    for part in parts:
        runs = []
        for seed in chosen.seeds:
            with tempfile.TemporaryDirectory() as folder:
                runs.append(part(seed, Path(folder)))
            print(
                f"{part.__name__}, seed {seed}:",
                {name: round(value, 3) for name, value in runs[-1].items()},
                flush=True,
            )
        for name in runs[0]:
            values = [run[name] for run in runs]
            print(f"{name}: {mean(values):.3f} ± {stdev(values) if len(values) > 1 else 0:.3f}")


if __name__ == "__main__":
    main()
