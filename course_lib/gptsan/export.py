"""Export of a trained model as a Hugging Face folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course_lib.gptsan.config import GptsanConfig
from course_lib.gptsan.run import Gptsan
from course_lib.settings import config
from course_lib.training import checkpoint
from course_lib.training.run_dir import CONFIG, export_folder


def export(run: Path, target: Path, step: int | None = None) -> dict[str, int]:
    """Export the model from a run's checkpoint of a step, or the latest one; return the step and numbers of tensors.

    Frozen tensors are copied bit for bit from model.checkpoint. Trained tensors are the fp32 weights in the optimizer,
    converted to the dtype used in model.checkpoint or, for a new model, to the training dtype.
    """
    from course_lib.checkpoints import training_state, weight_files
    from course_lib.checkpoints.torch_dtypes import TORCH
    from course_lib.gptsan.configuration import read_config, read_weights
    from course_lib.gptsan.tf_names import hf_shapes, parameters

    latest = checkpoint.to_export(run, step)
    task = Gptsan(config.load(GptsanConfig, run / CONFIG))
    source = task.settings.model.checkpoint
    shape = read_config(source) if source else task.shape()
    weights = training_state.read_weights(latest)
    before = read_weights(source) if source else {}
    held, elements = hf_shapes(shape), parameters(shape)
    trained = elements.keys() - task.settings.frozen(shape)

    def tensors() -> Iterator[tuple[str, Any]]:
        for name in held:
            if name in trained or not source:
                value = weights.tensors[name].contiguous()
                dtype = before[name].dtype if source else TORCH[weights.trained_as]
                yield name, weight_files.converted(latest, name, value, dtype)
            else:
                yield name, before[name].contiguous()

    with export_folder(run, target) as folder:
        weight_files.write(tensors(), folder, weight_files.SHARD)
        shape.save_pretrained(folder)
        task.copy_tokenizer(folder)
    step = checkpoint.step_of(latest)
    return {"step": step, "trained": len(trained), "frozen": len(elements) - len(trained)}
