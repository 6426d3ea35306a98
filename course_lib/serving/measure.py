"""What a server's step costs."""

import time
from typing import Any

import torch

from course_lib.checkpoints.quiet import quiet
from course_lib.serving.engine import Slots

# Tokens of each text before the measured steps, and steps of which the fastest counts.
LENGTH, STEPS = 32, 10


@torch.inference_mode()
def step_seconds(model: Any, texts: int) -> float:
    """Return the processor time of a step that computes a token for each of so many texts, with one thread [s].

    Processor time does not count what other programs take meanwhile.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # transformers warns of texts without an attention mask.
        with quiet():
            slots = Slots(model)
            tokens = slots.prefill([[1] * LENGTH] * texts, [None] * texts).argmax(-1).tolist()
            seconds = []
            for _ in range(STEPS):
                started = time.process_time()
                tokens = slots.step(tokens).argmax(-1).tolist()
                seconds.append(time.process_time() - started)
    finally:
        torch.set_num_threads(threads)
    return min(seconds)
