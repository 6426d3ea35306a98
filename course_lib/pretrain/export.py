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
from course_lib.checkpoints.tokenizer_files import copy_tokenizer
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
        weights = tr(self.weights)
        parts = [] if self.step is None else [tr("step {step:,}", step=self.step)]
        parts.append(tr("{parameters:,} parameters ({weights}) in {dtype}", **self.__dict__ | {"weights": weights}))
        parts += [] if self.loss is None else [tr("held-out loss {loss:.4f}", loss=self.loss)]
        return tr(", ").join(parts) + f" → {self.folder}"


@dataclass(frozen=True)
class _Source:
    """The checkpoint to export, with its run folder and step if known."""

    checkpoint: Path
    run: Path | None
    step: int | None


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

    Args:
        source: a run folder (its latest checkpoint, or that of `step`), a Trainer checkpoint, or a raw DeepSpeed
            checkpoint, which needs `config` and `tokenizer`.
        target: the model folder to write.
        dtype: data type of the weights; None: that of the training, in which the model was evaluated.
        license: license for the model card, such as apache-2.0.
        config: a config.json or the YAML settings of a run; overrides that of the checkpoint and the run.
        tokenizer: a tokenizer folder; overrides those of the checkpoint and the run.
        step: for a run folder, the step of another checkpoint.
    """
    found = _find(source, step)
    own = found.run is not None and target.absolute() == found.run.absolute() / MODEL
    settings = settings_files.load(PretrainConfig, found.run / CONFIG) if found.run else None
    tokenizer_folder = _tokenizer_folder(found, settings, tokenizer)
    for read_only in () if own else (source, tokenizer_folder):
        require_other(read_only, target)
    shape = _shape(found, settings, config)
    entries = _use_tokenizer(shape, tokenizer_folder)
    _use_older_names(shape)
    logged = _log(found)
    losses = [entry["loss"] for entry in logged if entry["kind"] == "eval" and entry["loss"] is not None]
    loss = float(losses[-1]) if losses else None
    with atomic_folder(target, ours=own) as folder:
        weights = read_weights(found.checkpoint)
        stored = dtype or weights.trained_as
        model = _build(shape, weights, TORCH[stored], found.checkpoint)
        model.generation_config = _generation_defaults(shape, entries)
        with quiet():
            model.save_pretrained(folder)
        copy_tokenizer(tokenizer_folder, folder, shape.max_position_embeddings)
        if logged:
            from course_lib.pretrain import figures

            figures.loss_curve(logged).savefig(folder / "curves.png", dpi=150, bbox_inches="tight")
        samples = _json(found.run / DEEPSPEED).get("train_batch_size") if found.run else None
        training = card.training_rows(settings, found.step, samples)
        text = card.text(
            model,
            title=target.absolute().parent.name if target.name == MODEL else target.absolute().name,
            name=target.absolute().name,
            license=license,
            prepared=(folder / "preparation.json").is_file(),
            data=_json(found.run / DATA) if found.run else {},
            training=[*training, ("these weights", f"{weights.kind}, stored as {stored}")],
            loss=loss,
            curves=bool(logged),
        )
        (folder / "README.md").write_text(text, encoding="utf8")
        files = tuple(sorted(path.name for path in folder.iterdir()))
    return ExportReport(target, found.checkpoint, found.step, weights.kind, stored, model.num_parameters(), loss, files)


def _find(source: Path, step: int | None) -> _Source:
    """Return the checkpoint that `source` refers to."""
    if not source.is_dir():
        raise CourseError(f"{source}: no such folder")
    if (source / FOLDER).is_dir():
        found = to_export(source, step)
        return _Source(found, source if (source / CONFIG).is_file() else None, step_of(found))
    if step is not None:
        raise UsageError(f"--step: {step} is not allowed: {source} is no run folder")
    parent = source.absolute().parent
    run = parent.parent if parent.name == FOLDER and (parent.parent / CONFIG).is_file() else None
    if run and not is_whole(source):
        raise CourseError(f"{source}: the checkpoint is damaged or incomplete; `course export {run}` lists the others")
    return _Source(source, run, _step(source))


def _step(checkpoint: Path) -> int | None:
    """Return the step number N from a checkpoint-N or global_stepN folder name, or None if there is none."""
    folder = step_folder(checkpoint)
    names = f"{checkpoint.name} {folder.name if folder else ''}"
    match = re.search(r"\b(?:checkpoint-|global_step)(\d+)\b", names)
    return int(match[1]) if match else None


def _tokenizer_folder(found: _Source, settings: PretrainConfig | None, requested: Path | None) -> Path:
    """Return `requested`, or else the tokenizer folder of the checkpoint, of the run or of its settings."""
    candidates = [requested] if requested else [found.checkpoint]
    if found.run and not requested:
        candidates.append(found.run / "tokenizer")
    if settings and settings.data.tokenizer and not requested:
        candidates.append(settings.data.tokenizer)
    for folder in candidates:
        if any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
            return folder
    raise UsageError(f"--tokenizer: none in {candidates[0]}; allowed: a folder with tokenizer.json")


def _use_tokenizer(shape: CausalConfig, folder: Path) -> int:
    """Set the model's special ids to those of the tokenizer in a folder, and return its number of entries."""
    tokenizer = load_tokenizer(folder)
    end = tokenizer.eos_token_id
    if end is None:
        raise CourseError(f"{folder}: names no end-of-text token (eos_token)")
    if shape.vocab_size < len(tokenizer):
        raise CourseError(
            f"{folder}: {len(tokenizer)} tokens, but the model has {shape.vocab_size} rows: not its tokenizer"
        )
    shape.bos_token_id = end if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    shape.eos_token_id, shape.pad_token_id = end, end if tokenizer.pad_token_id is None else tokenizer.pad_token_id
    return len(tokenizer)


def _shape(found: _Source, settings: PretrainConfig | None, requested: Path | None) -> CausalConfig:
    """Return the configuration that `requested` names, or else that of the checkpoint or of the run's settings."""
    path = requested or found.checkpoint / "config.json"
    if path.suffix in (".yaml", ".yml"):
        settings = settings_files.load(PretrainConfig, path)
    elif requested or path.is_file():
        return _read_config(path / "config.json" if path.is_dir() else path)
    if settings is None:
        raise UsageError(
            f"--config: {found.checkpoint} says nothing of the model's shape; "
            "allowed: a config.json, or the YAML of the run"
        )
    return model_config(settings.model)


def _read_config(path: Path) -> CausalConfig:
    """Return the configuration in a config.json."""
    content = _json(path)
    kind = content.get("model_type")
    if kind not in BY_MODEL_TYPE:
        raise CourseError(f"{path}: model_type {kind!r}, expected one of {', '.join(map(repr, BY_MODEL_TYPE))}")
    try:
        return CONFIG_MAPPING[kind].from_dict(content)
    # The transformers validators can raise any exception.
    except Exception as error:
        raise CourseError(f"{path}: not readable as a model: {one_line(error)}") from error


def _use_older_names(shape: CausalConfig) -> None:
    """Set the names that older transformers versions read; without rotary_pct, they assume 0.25."""
    if isinstance(shape, GPTNeoXConfig):
        shape.rotary_pct = shape.rope_parameters["partial_rotary_factor"]
        shape.rotary_emb_base = shape.rope_parameters["rope_theta"]
    elif shape.activation_function == "gelu_pytorch_tanh":
        shape.activation_function = "gelu_new"


def _build(shape: CausalConfig, weights: Weights, dtype: torch.dtype, checkpoint: Path) -> CausalModel:
    """Build the model on the CPU."""
    try:
        with torch.device("meta"):
            model: CausalModel = AutoModelForCausalLM.from_config(shape)
    # transformers raises various exceptions for inconsistent sizes.
    except Exception as error:
        raise CourseError(f"{checkpoint}: no model has this configuration: {one_line(error)}") from error
    wanted, family = model.state_dict(), BY_MODEL_TYPE[shape.model_type]
    tensors: dict[str, torch.Tensor] = {}
    for stored_as, tensor in weights.tensors.items():
        # Prefixes added by DistributedDataParallel and torch.compile.
        name = stored_as.removeprefix("module.").removeprefix("_orig_mod.")
        name = HEAD if name == FILED_HEAD else name
        name = name if name in wanted else f"{model.base_model_prefix}.{name}"
        if name not in wanted:
            raise CourseError(f"{checkpoint}: {stored_as} is no weight of a {family.title}")
        if tensor.shape != wanted[name].shape:
            raise CourseError(
                f"{checkpoint}: {stored_as} has shape {tuple(tensor.shape)}, "
                f"the configuration says {tuple(wanted[name].shape)}"
            )
        tensors[name] = tensor.contiguous().to(dtype)
    tied, embedding = shape.tie_word_embeddings, family.embedding
    if tied and embedding in tensors:
        tensors.setdefault(HEAD, tensors[embedding])
    if missing := sorted(wanted.keys() - tensors.keys()):
        raise CourseError(f"{checkpoint}: lacks {len(missing)} weights of the model, such as {missing[0]}")
    if tied and not torch.equal(tensors[HEAD], tensors[embedding]):
        raise CourseError(f"{checkpoint}: {HEAD} differs from {embedding}, which a {family.title} uses for both")
    model.load_state_dict(tensors, assign=True)
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


def _log(found: _Source) -> list[dict[str, Any]]:
    """Return the log entries up to the checkpoint's step, from the run's log or else from trainer_state.json."""
    if found.run and (found.run / log.FILE).is_file():
        entries = log.read(found.run)
    else:
        entries = []
        path = found.checkpoint / "trainer_state.json"
        for entry in _json(path).get("log_history", []):
            kind, key = ("eval", "eval_loss") if "eval_loss" in entry else ("train", "loss")
            if key in entry:
                entries.append({"kind": kind, "step": entry["step"], "loss": entry[key]})
    return [entry for entry in entries if found.step is None or entry["step"] <= found.step]


def _json(path: Path) -> dict[str, Any]:
    """Return the JSON object from a file, or an empty dict if the file does not exist."""
    return read_json(path) if path.exists() else {}
