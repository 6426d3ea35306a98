"""The parts of data/tasks/instructions.jsonl, questions with answers."""

from dataclasses import dataclass

from course_lib import paths
from course_lib.documents import json_objects, read_batches

TEMPLATE = "質問：{}\n答え："
# In the order of the file; each has the same number of pairs in each part.
KINDS = ("knowledge", "plain", "reading", "opposite", "sum")
TRAIN, CHOOSE = 300, 50  # pairs; the others judge


@dataclass(frozen=True)
class Instruction:
    """A question in the template, and its answer."""

    kind: str
    prompt: str
    target: str


def parts() -> tuple[list[Instruction], list[Instruction], list[Instruction]]:
    """Return the pairs to train with, to choose a learning rate with, and to judge with."""
    lines = [
        line
        for batch in read_batches(paths.data("tasks/instructions.jsonl"))
        for _, line in json_objects(batch, "kind", "prompt", "target")
    ]
    pairs = [Instruction(line["kind"], TEMPLATE.format(line["prompt"]), line["target"]) for line in lines]
    return pairs[:TRAIN], pairs[TRAIN : TRAIN + CHOOSE], pairs[TRAIN + CHOOSE :]


def examples(number: int = len(KINDS)) -> str:
    """Return a prompt with examples: the first training pairs, one of each kind, a line behind each answer."""
    train, _, _ = parts()
    return "".join(f"{pair.prompt}{pair.target}\n" for pair in train[:number])
