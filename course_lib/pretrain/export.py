"""From a checkpoint to a folder that `from_pretrained` and `pipeline` load: weights, tokenizer, generation defaults, model card.

Reads a run of ours, a checkpoint of the Trainer, or a raw checkpoint of DeepSpeed. Megatron's checkpoints are megatron.py's.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoModelForCausalLM, GenerationConfig, GPT2Config, GPTNeoXConfig

from course_lib import config as settings_files
from course_lib.checkpoints.deepspeed_shards import Weights, read_weights, step_folder
from course_lib.checkpoints.model_folder import check_sizes, load_tokenizer, one_line
from course_lib.checkpoints.quiet import quiet
from course_lib.checkpoints.tokenizer_files import copy_tokenizer
from course_lib.checkpoints.weight_files import is_leftover
from course_lib.errors import CourseError, UsageError
from course_lib.files import atomic_folder, read_json, require_other
from course_lib.models.causal import CausalModel, Shape, model_config
from course_lib.pretrain import card
from course_lib.pretrain.config import PretrainConfig
from course_lib.pretrain.generation import MAX_NEW_TOKENS, GenerateConfig
from course_lib.training import log
from course_lib.training.checkpoint import FOLDER, is_whole, step_of, whole_checkpoints

Format = Literal["fp32", "bf16", "fp16"]
TORCH: dict[str, torch.dtype] = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
SHAPES: dict[str, type[Shape]] = {"gpt2": GPT2Config, "gpt_neox": GPTNeoXConfig}  # by model_type
EMBEDDINGS = {"gpt2": "transformer.wte.weight", "gpt_neox": "gpt_neox.embed_in.weight"}
HEAD, FILED_HEAD = "lm_head.weight", "embed_out.weight"  # in memory; in files of a GPT-NeoX
SETTINGS = "config.yaml"  # of a run
MODEL = "model"  # where `course pretrain` puts the export in the folder of a run


@dataclass(frozen=True)
class ExportReport:
    """What was exported."""

    folder: Path
    checkpoint: Path
    step: int | None
    weights: str  # what the weights are of, such as "fp32 master weights"
    dtype: str  # format they are stored in
    parameters: int
    loss: float | None  # last held-out loss up to this step [nats per token]
    files: tuple[str, ...]

    def summary(self) -> str:
        """One line."""
        step = "" if self.step is None else f"step {self.step:,}, "
        loss = "" if self.loss is None else f", held-out loss {self.loss:.4f}"
        return f"{step}{self.parameters:,} parameters ({self.weights}) in {self.dtype}{loss} → {self.folder}"


@dataclass(frozen=True)
class _Source:
    """Where the parts of an export lie."""

    checkpoint: Path
    run: Path | None
    step: int | None


def export(
    source: Path,
    target: Path,
    dtype: Format | None = None,
    license: str | None = None,
    config: Path | None = None,
    tokenizer: Path | None = None,
) -> ExportReport:
    """Writes the model of `source` to the folder `target`, which appears whole or not at all.

    `source` is a run (then its latest whole checkpoint), a checkpoint of the Trainer, or a raw one of DeepSpeed. `dtype` is the format of
    the weights; unset, the one the run computed in: what was trained and evaluated, at half the size of the fp32 master weights where that
    is 16 bits. `license` goes on the card. `config` (a config.json, or a run's YAML) and `tokenizer` (a folder) stand above what the
    checkpoint or its run holds; a raw checkpoint has neither. Raises CourseError and UsageError.
    """
    # the model of a run has its place inside the run
    if target.absolute() != source.absolute() / MODEL:
        require_other(source, target)
    found = _find(source)
    own = found.run is not None and target.absolute() == found.run.absolute() / MODEL
    settings = settings_files.load(PretrainConfig, found.run / SETTINGS) if found.run else None
    words = _tokenizer_folder(found, settings, tokenizer)
    if not own:
        for folder in (source, words):
            require_other(folder, target)
    read = _read_tokenizer(words)
    shape = _shape(found, settings, config)
    if shape.vocab_size < len(read):
        raise CourseError(f"{words}: {len(read)} tokens, but the model has {shape.vocab_size} rows: not its tokenizer")
    end = read.eos_token_id
    shape.bos_token_id = end if read.bos_token_id is None else read.bos_token_id
    shape.eos_token_id, shape.pad_token_id = end, end if read.pad_token_id is None else read.pad_token_id
    _use_older_names(shape)
    entries = _log(found)
    with atomic_folder(target, ours=own) as folder:
        weights = read_weights(found.checkpoint)
        stored = dtype or weights.trained_as
        model = _build(shape, weights, TORCH[stored], found.checkpoint)
        model.generation_config = _generation_defaults(shape, len(read))
        with quiet():
            model.save_pretrained(folder)
        copy_tokenizer(words, folder, shape.max_position_embeddings)
        facts = card.Facts(
            title=target.absolute().parent.name if target.name == MODEL else target.absolute().name,
            name=target.absolute().name,
            parameters=model.num_parameters(),
            shape=shape,
            step=found.step,
            weights=weights.kind,
            dtype=stored,
            license=license,
            settings=settings,
            samples=_json(found.run / "deepspeed.json").get("train_batch_size") if found.run else None,
            data=_json(found.run / "data.json") if found.run else {},
            log=entries,
            prepared=(folder / "preparation.json").is_file(),
            curves=_draw(entries, folder / "curves.png"),
        )
        (folder / "README.md").write_text(card.text(facts), encoding="utf8")
        files = tuple(sorted(path.name for path in folder.iterdir()))
    return ExportReport(target, found.checkpoint, found.step, weights.kind, stored, facts.parameters, facts.loss, files)


def _find(source: Path) -> _Source:
    """The checkpoint a source names. Raises CourseError if there is none, or it is not whole."""
    if not source.is_dir():
        raise CourseError(f"{source}: no such folder")
    if (source / FOLDER).is_dir():
        whole = whole_checkpoints(source)
        if not whole:
            raise CourseError(f"{source}: the run has no whole checkpoint yet")
        return _Source(whole[0], source if (source / SETTINGS).is_file() else None, step_of(whole[0]))
    parent = source.absolute().parent
    run = parent.parent if parent.name == FOLDER and (parent.parent / SETTINGS).is_file() else None
    if run and not is_whole(source):
        raise CourseError(f"{source}: the checkpoint is not whole; `course export {run}` takes the latest that is")
    return _Source(source, run, _step(source))


def _step(checkpoint: Path) -> int | None:
    """The step in the name of a checkpoint-N or global_stepN."""
    folder = step_folder(checkpoint)
    for name in (checkpoint.name, folder.name if folder else ""):
        number = name.removeprefix("checkpoint-").removeprefix("global_step")
        if number != name and number.isdigit():
            return int(number)
    return None


def _tokenizer_folder(found: _Source, settings: PretrainConfig | None, given: Path | None) -> Path:
    candidates = [given] if given else [found.checkpoint, *([found.run / "tokenizer"] if found.run else [])]
    if not given and settings and settings.data.tokenizer:
        candidates.append(settings.data.tokenizer)
    for folder in candidates:
        if folder and any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json")):
            return folder
    where = f"{given} is no tokenizer folder" if given else f"none found beside {found.checkpoint}"
    raise UsageError(f"--tokenizer: {where}; allowed: a folder with tokenizer.json")


def _read_tokenizer(folder: Path) -> Any:
    read = load_tokenizer(folder)
    if read.eos_token_id is None:
        raise CourseError(f"{folder}: names no end-of-text token (eos_token)")
    return read


def _shape(found: _Source, settings: PretrainConfig | None, given: Path | None) -> Shape:
    """The model's shape: what the caller names, else the checkpoint's config.json, else the run's settings."""
    path = given or found.checkpoint / "config.json"
    if path.suffix in (".yaml", ".yml"):
        return model_config(settings_files.load(PretrainConfig, path).model)
    path = path / "config.json" if path.is_dir() else path
    if given is None and not path.is_file():
        if settings is None:
            raise UsageError(
                f"--config: {found.checkpoint} says nothing of the model's shape; allowed: a config.json, or the YAML of the run"
            )
        return model_config(settings.model)
    content = _json(path)
    kind = SHAPES.get(str(content.get("model_type")))
    if kind is None:
        raise CourseError(
            f"{path}: model_type {content.get('model_type')!r}, expected one of {', '.join(map(repr, SHAPES))}"
        )
    check_sizes(path, content)
    try:
        return kind.from_dict(content)
    except Exception as error:  # transformers raises what its validators do
        raise CourseError(f"{path}: not readable as a model: {one_line(error)}") from error


def _use_older_names(shape: Shape) -> None:
    """Adds what earlier readers call the same: GELU by tanh of GPT-2, the rotary share and base of GPT-NeoX (they would assume 0.25)."""
    if isinstance(shape, GPTNeoXConfig):
        shape.rotary_pct = shape.rope_parameters["partial_rotary_factor"]
        shape.rotary_emb_base = shape.rope_parameters["rope_theta"]
    elif shape.activation_function == "gelu_pytorch_tanh":
        shape.activation_function = "gelu_new"


def _build(shape: Shape, weights: Weights, dtype: torch.dtype, checkpoint: Path) -> CausalModel:
    """The model on the CPU. Raises CourseError if weights and shape differ."""
    try:
        with torch.device("meta"):
            model: CausalModel = AutoModelForCausalLM.from_config(shape)
    except Exception as error:  # sizes that do not go together
        raise CourseError(f"{checkpoint}: no model has this configuration: {one_line(error)}") from error
    wanted = model.state_dict()
    tensors: dict[str, torch.Tensor] = {}
    for stored_as, tensor in weights.tensors.items():
        if is_leftover(stored_as):
            continue
        name = stored_as.removeprefix("module.").removeprefix("_orig_mod.")  # DistributedDataParallel, torch.compile
        name = HEAD if name == FILED_HEAD else name
        name = name if name in wanted else f"{model.base_model_prefix}.{name}"
        if name not in wanted:
            raise CourseError(f"{checkpoint}: {stored_as} is no weight of a {card.FAMILIES[shape.model_type]}")
        if tensor.shape != wanted[name].shape:
            raise CourseError(
                f"{checkpoint}: {stored_as} has shape {tuple(tensor.shape)}, the configuration says {tuple(wanted[name].shape)}"
            )
        tensors[name] = tensor.contiguous().to(dtype)
    tied, embedding = shape.tie_word_embeddings, EMBEDDINGS[shape.model_type]
    if tied and embedding in tensors:
        tensors.setdefault(HEAD, tensors[embedding])
    if missing := sorted(wanted.keys() - tensors.keys()):
        raise CourseError(f"{checkpoint}: lacks {len(missing)} weights of the model, such as {missing[0]}")
    if tied and not torch.equal(tensors[HEAD], tensors[embedding]):
        raise CourseError(
            f"{checkpoint}: {HEAD} differs from {embedding}, which a {card.FAMILIES[shape.model_type]} uses for both"
        )
    model.load_state_dict(tensors, assign=True)
    model.tie_weights()
    return model.to(dtype)


def _generation_defaults(shape: Shape, tokens: int) -> GenerationConfig:
    """Those of `course generate`. A document begins behind the end of another, so that is where an empty prompt begins."""
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
        suppress_tokens=list(range(tokens, shape.vocab_size)) or None,  # rows of a padded vocabulary that are no token
    )


def _log(found: _Source) -> list[dict[str, Any]]:
    """The run's log up to the checkpoint; of another Trainer, what its state remembers."""
    if found.run and (found.run / log.FILE).is_file():
        entries = log.read(found.run)
    else:
        entries = []
        path = found.checkpoint / "trainer_state.json"
        for entry in _json(path).get("log_history", []) if path.is_file() else []:
            kind, key = ("eval", "eval_loss") if "eval_loss" in entry else ("train", "loss")
            if key in entry:
                entries.append({"kind": kind, "step": entry["step"], "loss": entry[key]})
    return [entry for entry in entries if found.step is None or entry["step"] <= found.step]


def _draw(entries: list[dict[str, Any]], path: Path) -> bool:
    if not entries:
        return False
    from course_lib.pretrain import figures

    figures.loss_curve(entries).savefig(path, dpi=150, bbox_inches="tight")
    return True


def _json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}
