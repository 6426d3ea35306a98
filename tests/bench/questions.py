"""At which size, and after how many steps, a model answers questions about a text of the small world that it has just read.

    python -m tests.bench.questions [--layers 2] [--width 128] [--heads 8] [--steps 2600]

Four of ten documents are followed by a question about a fact and its answer. Held-out documents have questions of the same forms. An
answer counts if each of its tokens, and the end behind it, is the most probable one. One process without DeepSpeed, one thread.
"""

import argparse
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import torch
import torch.nn.functional as F
from course_lib.models.causal import build_model
from course_lib.pretrain import products, text_codec
from course_lib.subword.products import tokenizer
from course_lib.training import quick
from course_lib.world.genres import documents
from course_lib.world.tasks import questions
from torch import Tensor

SHARE, BATCH, HELD_OUT, PARTS = 0.4, 10, 400, 4
WINDOW = 80  # documents that are sorted by length, as in course_lib/pretrain/unpacked.py


def main() -> None:
    """Train, and print the share of right answers by kind of fact after each quarter of the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in {"layers": 2, "width": 128, "heads": 8, "steps": 2600, "seed": 0}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(chosen.seed)
    codec, settings = text_codec.load(tokenizer().path()), products.recipe_settings()
    end = codec.tokenizer.eos_token_id
    shape = replace(
        settings.model, num_layers=chosen.layers, hidden_size=chosen.width, num_attention_heads=chosen.heads
    )
    model = build_model(shape, codec.tokenizer.bos_token_id, end)
    rng = random.Random(chosen.seed)

    def sample(text: str) -> list[int]:
        return [end, *codec.encode(text), end]

    train = []
    for document in documents(16_000, 0):
        question, answer, _ = rng.choice(questions(document))
        train.append(sample(document.text + (question + answer) * (rng.random() < SHARE)))
    asked = []
    for place, document in enumerate(documents(HELD_OUT, 1)):
        question, answer, fact = (found := questions(document))[place % len(found)]
        prompt = sample(document.text + question)[:-1]
        asked.append((f"{document.genre}: {fact}", prompt, sample(document.text + question + answer)[len(prompt) :]))

    def batches() -> Iterator[list[list[list[int]]]]:
        while True:
            order = rng.sample(range(len(train)), len(train))
            for start in range(0, len(order) - WINDOW + 1, WINDOW):
                window = sorted(order[start : start + WINDOW], key=lambda place: len(train[place]))
                for first in range(0, WINDOW, BATCH):
                    yield [[train[place] for place in window[first : first + BATCH]]]

    def loss(rows: list[list[int]]) -> Tensor:
        width = max(map(len, rows))
        ids = torch.tensor([row + [-100] * (width - len(row)) for row in rows])
        logits = model(ids[:, :-1].clamp(min=0)).logits
        return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())

    @torch.no_grad()
    def answers() -> str:
        right, total = Counter[str](), Counter[str]()
        for kind, prompt, target in asked:
            predicted = model(torch.tensor([[*prompt, *target]])).logits[0, len(prompt) - 1 : -1].argmax(-1)
            right[kind] += predicted.tolist() == target
            total[kind] += 1
        kinds = ", ".join(f"{kind} {right[kind]}/{number}" for kind, number in sorted(total.items()))
        return f"{right.total() / total.total():.1%} of {total.total()} ({kinds})"

    quarter, done = chosen.steps // PARTS, 0

    def watched() -> Iterator[list[list[list[int]]]]:
        nonlocal done
        for batch in batches():
            if done % quarter == 0 and done:
                print(f"{done} steps: {answers()}", flush=True)
            done += 1
            yield batch

    print(f"{model.num_parameters():,} parameters, {len(asked)} questions", flush=True)
    losses = quick.train(model, loss, watched(), settings.optimizer, chosen.steps)
    print(f"{chosen.steps} steps: {answers()}; training loss {sum(losses[-50:]) / 50:.3f} nats")


if __name__ == "__main__":
    main()
