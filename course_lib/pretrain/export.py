"""Export of a checkpoint as a Hugging Face folder with weights, tokenizer, generation defaults and model card.

`from_pretrained` and `pipeline` can load the folder. The source is a course run, a transformers Trainer checkpoint, or
a raw DeepSpeed checkpoint. megatron.py converts Megatron checkpoints.
"""

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
from course_lib.models.causal import CausalModel, Shape, model_config
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

    A raw DeepSpeed checkpoint has neither a configuration nor a tokenizer, so it requires both arguments.

    Args:
        source: a run folder (its latest checkpoint is used), a Trainer checkpoint, or a raw DeepSpeed
            checkpoint.
        target: the model folder to write.
        dtype: data type of the weights. None selects the training dtype, in which the model was evaluated. A 16-bit
            dtype takes half the space of the fp32 master weights.
        license: license for the model card, such as apache-2.0.
        config: a config.json or the YAML settings for a run; overrides the configuration of the checkpoint and the run.
        tokenizer: a tokenizer folder; overrides the tokenizers of the checkpoint and the run.
        step: for a run folder, the step of another checkpoint.

    Raises:
        CourseError: if a file is missing, damaged or inconsistent with the model.
        UsageError: if an argument is missing or not allowed.
    """
    # Reject a target inside its source, except for the `model` folder of a run.
    if target.absolute() != source.absolute() / MODEL:
        require_other(source, target)
    resolved = _find(source, step)
    own = resolved.run is not None and target.absolute() == resolved.run.absolute() / MODEL
    settings = settings_files.load(PretrainConfig, resolved.run / CONFIG) if resolved.run else None
    tokenizer_folder = _tokenizer_folder(resolved, settings, tokenizer)
    if not own:
        for folder in (source, tokenizer_folder):
            require_other(folder, target)
    loaded = _read_tokenizer(tokenizer_folder)
    shape = _shape(resolved, settings, config)
    if shape.vocab_size < len(loaded):
        raise CourseError(
            f"{tokenizer_folder}: {len(loaded)} tokens, but the model has {shape.vocab_size} rows: not its tokenizer"
        )
    end = loaded.eos_token_id
    shape.bos_token_id = end if loaded.bos_token_id is None else loaded.bos_token_id
    shape.eos_token_id, shape.pad_token_id = end, end if loaded.pad_token_id is None else loaded.pad_token_id
    _use_older_names(shape)
    entries = _log(resolved)
    with atomic_folder(target, ours=own) as folder:
        weights = read_weights(resolved.checkpoint)
        stored = dtype or weights.trained_as
        model = _build(shape, weights, TORCH[stored], resolved.checkpoint)
        model.generation_config = _generation_defaults(shape, len(loaded))
        with quiet():
            model.save_pretrained(folder)
        copy_tokenizer(tokenizer_folder, folder, shape.max_position_embeddings)
        facts = card.Facts(
            title=target.absolute().parent.name if target.name == MODEL else target.absolute().name,
            name=target.absolute().name,
            parameters=model.num_parameters(),
            shape=shape,
            step=resolved.step,
            weights=weights.kind,
            dtype=stored,
            license=license,
            settings=settings,
            samples=_json(resolved.run / DEEPSPEED).get("train_batch_size") if resolved.run else None,
            data=_json(resolved.run / DATA) if resolved.run else {},
            log=entries,
            prepared=(folder / "preparation.json").is_file(),
            curves=_draw(entries, folder / "curves.png"),
        )
        (folder / "README.md").write_text(card.text(facts), encoding="utf8")
        files = tuple(sorted(path.name for path in folder.iterdir()))
    return ExportReport(
        target, resolved.checkpoint, resolved.step, weights.kind, stored, facts.parameters, facts.loss, files
    )


def _find(source: Path, step: int | None) -> _Source:
    """Return the checkpoint that `source` refers to. Raises CourseError if it is missing or incomplete."""
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
    for name in (checkpoint.name, folder.name if folder else ""):
        number = name.removeprefix("checkpoint-").removeprefix("global_step")
        if number != name and number.isdigit():
            return int(number)
    return None


def _tokenizer_folder(resolved: _Source, settings: PretrainConfig | None, requested: Path | None) -> Path:
    """Return the tokenizer folder.

    This is `requested` if given, otherwise the first folder that contains a tokenizer: the checkpoint, the run's
    `tokenizer` folder or data.tokenizer. Raises UsageError if no tokenizer is found.
    """
    candidates = (
        [requested] if requested else [resolved.checkpoint, *([resolved.run / "tokenizer"] if resolved.run else [])]
    )
    if not requested and settings and settings.data.tokenizer:
        candidates.append(settings.data.tokenizer)
    for folder in candidates:
        if folder and any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
            return folder
    raise UsageError(
        f"--tokenizer: {requested} is no tokenizer folder; allowed: a folder with tokenizer.json"
        if requested
        else f"--tokenizer: none found beside {resolved.checkpoint}; allowed: a folder with tokenizer.json"
    )


def _read_tokenizer(folder: Path) -> Any:
    """Return the tokenizer from a folder. Raises CourseError if it has no eos token."""
    loaded = load_tokenizer(folder)
    if loaded.eos_token_id is None:
        raise CourseError(f"{folder}: names no end-of-text token (eos_token)")
    return loaded


def _shape(resolved: _Source, settings: PretrainConfig | None, requested: Path | None) -> Shape:
    """Return the model configuration.

    It comes from `requested` if given, otherwise from the checkpoint's config.json or, if that does not exist, from the
    run settings.
    """
    path = requested or resolved.checkpoint / "config.json"
    if path.suffix in (".yaml", ".yml"):
        return model_config(settings_files.load(PretrainConfig, path).model)
    path = path / "config.json" if path.is_dir() else path
    if requested is None and not path.is_file():
        if settings is None:
            raise UsageError(
                f"--config: {resolved.checkpoint} says nothing of the model's shape; "
                "allowed: a config.json, or the YAML of the run"
            )
        return model_config(settings.model)
    content = _json(path)
    kind = content.get("model_type")
    if kind not in BY_MODEL_TYPE:
        raise CourseError(f"{path}: model_type {kind!r}, expected one of {', '.join(map(repr, BY_MODEL_TYPE))}")
    try:
        return CONFIG_MAPPING[kind].from_dict(content)
    # The transformers validators can raise any exception.
    except Exception as error:
        raise CourseError(f"{path}: not readable as a model: {one_line(error)}") from error


def _use_older_names(shape: Shape) -> None:
    """Set the configuration names that older transformers versions read.

    These are gelu_new for GPT-2's tanh approximation of GELU, and rotary_pct and rotary_emb_base for GPT-NeoX. Without
    rotary_pct, older versions assume 0.25.
    """
    if isinstance(shape, GPTNeoXConfig):
        shape.rotary_pct = shape.rope_parameters["partial_rotary_factor"]
        shape.rotary_emb_base = shape.rope_parameters["rope_theta"]
    elif shape.activation_function == "gelu_pytorch_tanh":
        shape.activation_function = "gelu_new"


def _build(shape: Shape, weights: Weights, dtype: torch.dtype, checkpoint: Path) -> CausalModel:
    """Build the model on the CPU. Raises CourseError if the weights do not match the configuration."""
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


def _generation_defaults(shape: Shape, tokens: int) -> GenerationConfig:
    """Return the generation defaults for the exported model, which match those of `course generate`.

    In the training data, every document follows the eos token of another one, so an empty prompt starts with that
    token.
    """
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


def _log(resolved: _Source) -> list[dict[str, Any]]:
    """Return the log entries up to the checkpoint's step.

    They come from the run log if it exists, otherwise from trainer_state.json.
    """
    if resolved.run and (resolved.run / log.FILE).is_file():
        entries = log.read(resolved.run)
    else:
        entries = []
        path = resolved.checkpoint / "trainer_state.json"
        for entry in _json(path).get("log_history", []) if path.is_file() else []:
            kind, key = ("eval", "eval_loss") if "eval_loss" in entry else ("train", "loss")
            if key in entry:
                entries.append({"kind": kind, "step": entry["step"], "loss": entry[key]})
    return [entry for entry in entries if resolved.step is None or entry["step"] <= resolved.step]


def _draw(entries: list[dict[str, Any]], path: Path) -> bool:
    """Save the loss curve to a file if there are log entries, and return whether it was saved."""
    if not entries:
        return False
    from course_lib.pretrain import figures

    figures.loss_curve(entries).savefig(path, dpi=150, bbox_inches="tight")
    return True


def _json(path: Path) -> dict[str, Any]:
    """Return the JSON object from a file, or an empty dict if the file does not exist."""
    return read_json(path) if path.exists() else {}
