"""After how many steps, and on a base of which size, a prefix answers questions about a text of the small world.

    python -m tests.bench.questions [--steps 6000] [--questions 8000] [--seed 1024] [--layers 4 --hidden 192]

The base has never read a question; with --layers and --hidden it is trained first, otherwise it is that of the profile.
Held out are the last 100 questions of the product `prefix/pairs`. Printed are the held-out losses on the way, and the
right answers (exact match) by the fact that is asked for. About four minutes for the default on one core.
"""

import argparse
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

from course_lib.generation.config import GenerateConfig
from course_lib.generation.generator import Generator
from course_lib.prefix import data, products
from course_lib.prefix.export import export
from course_lib.prefix.files import read
from course_lib.prefix.run import PrefixRun
from course_lib.pretrain import products as pretrain
from course_lib.pretrain import text_codec
from course_lib.pretrain.export import export as export_base
from course_lib.pretrain.gpt2 import Gpt2
from course_lib.world.tasks import asked_for, write_pairs

from tests.bench import seeds

# As many as prefix-tiny.yaml holds out.
HELD_OUT = 100


def base_of(layers: int, hidden: int, seed: int, work: Path) -> Path:
    """Train a GPT-2 of another size as the profile's, and return its folder."""
    settings = pretrain.run_settings()
    shape = replace(settings.model, num_layers=layers, hidden_size=hidden, num_attention_heads=hidden // 16)
    run = seeds.trained(Gpt2, replace(settings, model=shape), seed, work / "base")
    print(f"{layers} layers of {hidden}: held-out loss of the base {seeds.held_out_loss(run):.3f} nats", flush=True)
    export_base(run.folder, work / "model")
    return work / "model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"steps": 6000, "questions": 8000, "seed": 1024}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    for name in ("layers", "hidden"):
        parser.add_argument(f"--{name}", type=int)
    chosen = parser.parse_args()
    base = products.base().path() / "model"
    products.PAIRS.path()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if chosen.layers:
            base = base_of(chosen.layers, chosen.hidden, chosen.seed, work)
        generator, codec = Generator(base, text_codec.load), text_codec.load(base)
        write_pairs(work, chosen.questions, products.PAIRS.resolve()[0]["seed"])
        asked_of_all = (work / "question.jsonl").read_text(encoding="utf8").splitlines(keepends=True)
        held_out_lines = products.pairs("question").read_text(encoding="utf8").splitlines(keepends=True)[-HELD_OUT:]
        training_lines = [line for line in asked_of_all if line not in held_out_lines]
        (work / "question.jsonl").write_text("".join(training_lines + held_out_lines), encoding="utf8")
        overrides = (f"data.input={work / 'question.jsonl'}", f"engine.max_steps={chosen.steps}", f"model.base={base}")
        evaluations = f"engine.eval_freq={max(1, chosen.steps // 10)}"
        settings = products.run_settings("title", *overrides, evaluations)
        run = seeds.trained(PrefixRun, settings, chosen.seed, work / "run")
        export(run.folder, work / "question.safetensors")
        prefix, held_out = read(work / "question.safetensors"), data.load(settings.data, codec).held_out
        prompts, wanted = ([codec.decode(getattr(pair, part)) for pair in held_out] for part in ("prompt", "target"))
        greedy = GenerateConfig(strategy="greedy", max_new_tokens=16)
        rows = generator.generate(prompts, greedy, [prefix] * len(prompts))
    for entry in run.log:
        if entry["kind"] == "eval":
            print(f"step {entry['step']}: held-out loss {entry['loss']:.3f} nats")
    right, asked = Counter[str | None](), Counter[str | None]()
    for prompt, row, target in zip(prompts, rows, wanted, strict=True):
        fact = asked_for(prompt.split("。")[-2])
        asked[fact] += 1
        right[fact] += row[0].continuation.strip() == target
    print(f"right: {right.total()} of {asked.total()}")
    print(", ".join(f"{fact} {right[fact]}/{number}" for fact, number in asked.most_common()))


if __name__ == "__main__":
    main()
