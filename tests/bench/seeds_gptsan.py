"""The numbers of notebook 05 that its own cells measure once, over several seeds of the tiny profile.

    python -m tests.bench.seeds_gptsan [--seeds 1024 1 2] [--part stage|alone|balance]

`stage`: the extra stage. A seed decides the new weights, which documents are held out, the order of the examples, and the sampled texts.
Printed are what naming the best wrong class costs, what is gained over the base, and, in a profile with the small world, which share of
the texts at each of TEMPERATURES is in the genre that the model was told.

`alone`: exercise 5. The spout network alone and the extra stage, both for ALONE_STEPS steps at each of FACTORS times the profile's learning
rate. Printed are the held-out loss and the share of texts in the genre told.

`balance`: the base with and without the routers' balance loss, for BALANCE_STEPS steps. Printed are the held-out loss and how even the
experts are used.

Vocabulary and examples are the products of chapter 5 (built if missing).
"""

from dataclasses import replace
from pathlib import Path
from statistics import mean

import torch
from course_lib.corpus.products import has_world
from course_lib.files import write_json
from course_lib.gptsan import products
from course_lib.gptsan.config import GenerateConfig, GPTSanRunConfig
from course_lib.gptsan.examples import Examples
from course_lib.gptsan.extra_stage import IGNORE, add_extra_stage
from course_lib.gptsan.generate import GPTSanGenerator
from course_lib.gptsan.hf_config import read_config
from course_lib.gptsan.measure import mean_loss, router_logits
from course_lib.gptsan.parameters import parameter_elements
from course_lib.gptsan.run import GPTSanRun
from course_lib.settings import config
from course_lib.training.run_dir import CONFIG
from course_lib.world.check import check

from tests.bench import seeds

# Texts that are sampled for each class; at most this many tokens each.
TEXTS, LENGTH, TEMPERATURES = 64, 200, (1.0, 0.8)
BALANCE_STEPS = 500
ALONE_STEPS, FACTORS = 300, (1, 3)


def trained(settings: GPTSanRunConfig, seed: int, folder: Path) -> GPTSanGenerator:
    """Return the model of a run with this seed."""
    run = seeds.trained(GPTSanRun, settings, seed, folder / "run")
    GPTSanRun(config.load(GPTSanRunConfig, run.folder / CONFIG)).export(folder / "model")
    return GPTSanGenerator.open(folder / "model")


def in_genre(writer: GPTSanGenerator, label: int, name: str, seed: int, temperature: float) -> float:
    """Return the share of sampled texts of a class that the checker finds to be of this genre."""
    # With one seed for all classes, an unlikely draw would fail in each of them at the same place.
    own = 100 * seed + label
    how = GenerateConfig(
        spout=label, num_generate=TEXTS, max_new_tokens=LENGTH, top_k=0, temperature=temperature, seed=own
    )
    return sum(check(text.strip()).genre == name for text in writer.continue_text("", how)) / TEXTS


def stage(seed: int, folder: Path) -> dict[str, float]:
    base, new = products.BASE.path() / "model", folder / "stage"
    add_extra_stage(base, new, 1, seed)
    settings = products.with_data(products.tuned_settings(), products.CLASSES.path())
    settings = replace(settings, model=replace(settings.model, checkpoint=new, ignore=new / IGNORE))
    writer, before = trained(settings, seed, folder), GPTSanGenerator.open(base).model
    after, names = writer.model, products.class_names()
    _, held_out = Examples(products.CLASSES.path()).split(settings.data.held_out, seed)
    vectors = torch.eye(after.config.d_spout)
    found = {}
    for label, name in enumerate(names):
        texts = [example for example in held_out if example["i"] == label]
        losses = [mean_loss(after, texts, vectors[told]) for told in range(len(names))]
        right = losses.pop(label)
        found[f"{name}: best wrong class costs"] = min(losses) - right
        found[f"{name}: gain over the base"] = mean_loss(before, texts) - right
        if has_world():
            for temperature in TEMPERATURES:
                found[f"{name}: in the genre at {temperature}"] = in_genre(writer, label, name, seed, temperature)
    if has_world():
        for temperature in TEMPERATURES:
            found[f"in the genre at {temperature}"] = mean(
                found[f"{name}: in the genre at {temperature}"] for name in names
            )
    return found


def alone(seed: int, folder: Path) -> dict[str, float]:
    base, new, others = products.BASE.path() / "model", folder / "stage", folder / "others.json"
    add_extra_stage(base, new, 1, seed)
    names = parameter_elements(read_config(base).shape)
    write_json(others, [name for name in names if not name.startswith("model.spout.")])
    settings = products.with_data(products.tuned_settings(), products.CLASSES.path())
    settings = replace(settings, engine=replace(settings.engine, max_steps=ALONE_STEPS))
    _, held_out = Examples(products.CLASSES.path()).split(settings.data.held_out, seed)
    rate, found = settings.optimizer.lr, {}
    for way, checkpoint, ignore in (("spout alone", base, others), ("extra stage", new, new / IGNORE)):
        for factor in FACTORS:
            chosen = replace(
                settings,
                model=replace(settings.model, checkpoint=checkpoint, ignore=ignore),
                optimizer=replace(settings.optimizer, lr=replace(rate, max=factor * rate.max)),
            )
            writer = trained(chosen, seed, folder / f"{way} {factor}")
            vectors = torch.eye(writer.config.d_spout)
            losses, shares = [], []
            for label, name in enumerate(products.class_names()):
                texts = [example for example in held_out if example["i"] == label]
                losses.append(mean_loss(writer.model, texts, vectors[label]))
                shares.append(in_genre(writer, label, name, seed, 1.0))
            found[f"{way}, {factor} × rate: held-out loss"] = mean(losses)
            found[f"{way}, {factor} × rate: in the genre"] = mean(shares)
    return found


def balance(seed: int, folder: Path) -> dict[str, float]:
    found = {}
    settings = products.with_data(products.base_settings(), products.CORPUS.path(), products.VOCABULARY.path())
    settings = replace(settings, engine=replace(settings.engine, max_steps=BALANCE_STEPS))
    for name, factor in (("with", settings.loss.router_balance), ("without", 0.0)):
        chosen = replace(settings, loss=replace(settings.loss, router_balance=factor))
        model = trained(chosen, seed, folder / name).model
        held_out = list(Examples(products.CORPUS.path()).split(settings.data.held_out, seed)[1])
        logits = router_logits(model, held_out)
        load = torch.nn.functional.one_hot(logits.argmax(-1), logits.shape[-1]).float().mean(1)
        found[f"{name}: held-out loss"] = mean_loss(model, held_out)
        found[f"{name}: largest share of an expert"] = float(load.max())
        found[f"{name}: smallest share of an expert"] = float(load.min())
    return found


if __name__ == "__main__":
    seeds.main(__doc__, stage, alone, balance)
