"""The same greedy continuation by several engines, to compare their texts and speed.

A writer takes sequences of ids and a number of tokens, and returns that many new ids for each, never the end of text.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from course_lib.checkpoints.quiet import quiet
from course_lib.generation.config import GenerateConfig
from course_lib.generation.prefix_cache import left_padded
from course_lib.serving.ct2_generate import Ct2Generator

Rows = Sequence[Sequence[int]]
Writer = Callable[[Rows, int], list[list[int]]]


def hugging_face(model: Any) -> Writer:
    """Return a writer that calls the transformers `generate` method."""

    def write(rows: Rows, new: int) -> list[list[int]]:
        ids, mask = left_padded(rows, model.device)
        end = model.generation_config.eos_token_id
        options = {"max_new_tokens": new, "min_new_tokens": new, "eos_token_id": end, "pad_token_id": end}
        settings = GenerationConfig(do_sample=False, **options)
        with torch.inference_mode(), quiet():
            texts = model.generate(ids, attention_mask=mask, generation_config=settings)
        written: list[list[int]] = texts[:, ids.shape[1] :].tolist()
        return written

    return write


def ct2(folder: Path) -> Writer:
    """Return a writer for a folder written by `course ct2 export`."""
    generator = Ct2Generator(folder, threads=1)

    def write(rows: Rows, new: int) -> list[list[int]]:
        settings = GenerateConfig(strategy="greedy", max_new_tokens=new, min_new_tokens=new)
        return [texts[0] for texts in generator.continue_ids(rows, settings)]

    return write
