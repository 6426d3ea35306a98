"""Export of a checkpoint as a Hugging Face folder with weights, tokenizer, generation defaults and model card.

`from_pretrained` and `pipeline` can load the folder. The source is a course run, a transformers Trainer checkpoint, or
a raw DeepSpeed checkpoint. megatron.py converts Megatron checkpoints.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, GenerationConfig, GPTNeoXConfig

from course_lib.checkpoints.deepspeed_shards import Weights, read_weights, step_folder
from course_lib.checkpoints.model_folder import load_tokenizer
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.checkpoints.quiet import quiet
from course_lib.checkpoints.tokenizer_files import copy_tokenizer, has_tokenizer
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.errors import CourseError, UsageError, one_line
from course_lib.files import atomic_folder, read_json, require_other
from course_lib.generation.config import MAX_NEW_TOKENS, GenerateConfig
from course_lib.language.words import tr
from course_lib.models.causal import CausalConfig, CausalModel, model_config
from course_lib.models.families import BY_MODEL_TYPE
from course_lib.pretrain import card
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config as settings_files
from course_lib.training import log
from course_lib.training.checkpoint import FOLDER, is_whole, step_of, to_export
from course_lib.training.run_dir import DATA, DEEPSPEED, MODEL
from course_lib.training.task import CONFIG

# Names of the output head in memory and in GPT-NeoX files.
HEAD, FILED_HEAD = "lm_head.weight", "embed_out.weight"


@dataclass(frozen=True)
class ExportReport:
    """The result of an export."""

    folder: Path
    checkpoint: Path
    step: int | None
    weights: str  # source of the weights, such as "fp32 master weights"
    dtype: str  # data type of the exported weights
    parameters: int
    loss: float | None  # last held-out loss up to this step [nats per token]
    files: tuple[str, ...]

    def summary(self) -> str:
        """Return the report as one line for the terminal."""
        values = vars(self) | {"weights": tr(self.weights)}
        parts = [] if self.step is None else [tr("step {step:,}", step=self.step)]
        parts.append(tr("{parameters:,} parameters ({weights}) in {dtype}", **values))
        parts += [] if self.loss is None else [tr("held-out loss {loss:.4f}", loss=self.loss)]
        return tr(", ").join(parts) + f" → {self.folder}"


def export(
    source: Path,
    target: Path,
    dtype: NumberFormat | None = None,
    license: str | None = None,
    config: Path | None = None,
    tokenizer: Path | None = None,
    step: int | None = None,
) -> ExportReport:
    """Export the model in `source` to the `target` folder, which is written atomically.

    `source` is a run folder (its latest checkpoint, or that of `step`), a Trainer checkpoint, or a raw DeepSpeed
    checkpoint, which needs `config` (a config.json, or the YAML settings of a run) and `tokenizer`; both override those
    of the checkpoint and the run. `dtype` None is that of the training, in which the model was evaluated.
    """
    checkpoint, run, step = _find(source, step)
    own = run is not None and target.absolute() == run.absolute() / MODEL
    settings = settings_files.load(PretrainConfig, run / CONFIG) if run else None
    tokenizer = tokenizer or _tokenizer_folder(checkpoint, run, settings)
    for read_only in () if own else (source, tokenizer):
        require_other(read_only, target)
    shape = _shape(checkpoint, settings, config)
    entries = _complete(shape, tokenizer)
    logged = [entry for entry in log.read(run) if step is None or entry["step"] <= step] if run else []
    losses = [entry["loss"] for entry in logged if entry["kind"] == "eval" and entry["loss"] is not None]
    loss = float(losses[-1]) if losses else None
    with atomic_folder(target, ours=own) as folder:
        weights = read_weights(checkpoint)
        stored = dtype or weights.trained_as
        model = _build(shape, weights, TORCH[stored], checkpoint)
        model.generation_config = _generation_defaults(shape, entries)
        with quiet():
            model.save_pretrained(folder)
        copy_tokenizer(tokenizer, folder, shape.max_position_embeddings)
        if logged:
            from course_lib.pretrain import figures

            figures.loss_curve(logged).savefig(folder / card.CURVES, dpi=150, bbox_inches="tight")
        deepspeed, data = (_json(run / name) if run else {} for name in (DEEPSPEED, DATA))
        training = card.training_rows(settings, step, deepspeed.get("train_batch_size"))
        training.append(("these weights", f"{weights.kind}, stored as {stored}"))
        text = card.text(model, folder, target.absolute(), license, data, training, loss)
        (folder / "README.md").write_text(text, encoding="utf8")
        files = tuple(sorted(path.name for path in folder.iterdir()))
    return ExportReport(target, checkpoint, step, weights.kind, stored, model.num_parameters(), loss, files)


def _find(source: Path, step: int | None) -> tuple[Path, Path | None, int | None]:
    """Return the checkpoint that `source` refers to, and its run folder and step if known."""
    if not source.is_dir():
        raise CourseError(f"{source}: no such folder")
    if (source / FOLDER).is_dir():
        checkpoint = to_export(source, step)
        return checkpoint, source if (source / CONFIG).is_file() else None, step_of(checkpoint)
    if step is not None:
        raise UsageError(f"--step: {step} is not allowed: {source} is no run folder")
    parent = source.absolute().parent
    run = parent.parent if parent.name == FOLDER and (parent.parent / CONFIG).is_file() else None
    if run and not is_whole(source):
        raise CourseError(f"{source}: the checkpoint is damaged or incomplete; `course export {run}` lists the others")
    folder = step_folder(source)
    match = re.search(r"\b(?:checkpoint-|global_step)(\d+)\b", f"{source.name} {folder.name if folder else ''}")
    return source, run, int(match[1]) if match else None


def _tokenizer_folder(checkpoint: Path, run: Path | None, settings: PretrainConfig | None) -> Path:
    """Return the tokenizer folder of the checkpoint, of the run or of its settings."""
    for folder in (checkpoint, run and run / "tokenizer", settings and settings.data.tokenizer):
        if folder and has_tokenizer(folder):
            return folder
    raise UsageError(f"--tokenizer: none in {checkpoint}; allowed: a folder with tokenizer.json")


def _shape(checkpoint: Path, settings: PretrainConfig | None, requested: Path | None) -> CausalConfig:
    """Return the configuration that `requested` names, or else that of the checkpoint or of the run's settings."""
    path = requested or checkpoint
    path = path / "config.json" if path.is_dir() else path
    if path.suffix in (".yaml", ".yml"):
        settings = settings_files.load(PretrainConfig, path)
    elif requested or path.is_file():
        content = read_json(path)
        kind = content.get("model_type")
        if kind not in BY_MODEL_TYPE:
            raise CourseError(f"{path}: model_type {kind!r}, expected one of {', '.join(map(repr, BY_MODEL_TYPE))}")
        try:
            return CONFIG_MAPPING[kind].from_dict(content)
        # The transformers validators can raise any exception.
        except Exception as error:
            raise CourseError(f"{path}: not readable as a model: {one_line(error)}") from error
    if settings is None:
        raise UsageError(
            f"--config: {checkpoint} says nothing of the model's shape; allowed: a config.json, or the YAML of the run"
        )
    return model_config(settings.model)


def _complete(shape: CausalConfig, tokenizer_folder: Path) -> int:
    """Set the tokenizer's special ids and names for older transformers; return the tokenizer's number of entries."""
    tokenizer = load_tokenizer(tokenizer_folder)
    begin, end, padding = tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id
    if end is None:
        raise CourseError(f"{tokenizer_folder}: names no end-of-text token (eos_token)")
    if shape.vocab_size < len(tokenizer):
        raise CourseError(f"{tokenizer_folder}: {len(tokenizer)} tokens, but the model has {shape.vocab_size} rows")
    shape.bos_token_id, shape.eos_token_id = end if begin is None else begin, end
    shape.pad_token_id = end if padding is None else padding
    if isinstance(shape, GPTNeoXConfig):
        # Older transformers versions assume 0.25 if rotary_pct is missing.
        shape.rotary_pct = shape.rope_parameters["partial_rotary_factor"]
        shape.rotary_emb_base = shape.rope_parameters["rope_theta"]
    elif shape.activation_function == "gelu_pytorch_tanh":
        shape.activation_function = "gelu_new"
    return len(tokenizer)


def _build(shape: CausalConfig, weights: Weights, dtype: torch.dtype, checkpoint: Path) -> CausalModel:
    """Build the model on the CPU."""
    family = BY_MODEL_TYPE[shape.model_type]
    try:
        with torch.device("meta"):
            model: CausalModel = AutoModelForCausalLM.from_config(shape)
        wanted = model.state_dict().keys()
        tensors: dict[str, torch.Tensor] = {}
        for stored_as, tensor in weights.tensors.items():
            # Prefixes added by DistributedDataParallel and torch.compile.
            name = stored_as.removeprefix("module.").removeprefix("_orig_mod.")
            name = HEAD if name == FILED_HEAD else name
            name = name if name in wanted else f"{model.base_model_prefix}.{name}"
            tensors[name] = tensor.contiguous().to(dtype)
        shared = tensors.get(family.embedding) if shape.tie_word_embeddings else None
        if shared is not None and not torch.equal(tensors.setdefault(HEAD, shared), shared):
            raise CourseError(f"{checkpoint}: {HEAD} differs from {family.embedding}, which are one in this model")
        model.load_state_dict(tensors, assign=True)
    # transformers and torch name sizes that are inconsistent, and weights that are missing, unknown or misshapen.
    except (RuntimeError, ValueError) as error:
        raise CourseError(f"{checkpoint}: not the weights of this model: {one_line(error)}") from error
    model.tie_weights()
    return model.to(dtype)


def _generation_defaults(shape: CausalConfig, tokens: int) -> GenerationConfig:
    """Return the defaults of `course generate`; an empty prompt starts with eos, as documents do in training."""
    defaults = GenerateConfig()
    return GenerationConfig(
        do_sample=True,
        top_k=defaults.top_k,
        top_p=defaults.top_p,
        temperature=defaults.temperature,
        max_new_tokens=min(MAX_NEW_TOKENS, max(1, shape.max_position_embeddings // 2)),
        bos_token_id=shape.eos_token_id,
        eos_token_id=shape.eos_token_id,
        pad_token_id=shape.pad_token_id,
        # Padding entries in the vocabulary, which are not tokens.
        suppress_tokens=list(range(tokens, shape.vocab_size)) or None,
    )


def _json(path: Path) -> dict[str, Any]:
    """Return the JSON object from a file, or an empty dict if the file does not exist."""
    return read_json(path) if path.exists() else {}
