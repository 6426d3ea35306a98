"""Export of a run as a Hugging Face folder with weights, tokenizer, generation defaults and model card.

`from_pretrained` and `pipeline` can load the folder. megatron.py converts Megatron checkpoints.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
import yaml
from huggingface_hub import ModelCard, ModelCardData
from transformers import AutoModelForCausalLM, GenerationConfig, GPTNeoXConfig

from course_lib.checkpoints import weight_files
from course_lib.checkpoints.model_folder import load_tokenizer, save_model
from course_lib.checkpoints.number_formats import NumberFormat
from course_lib.checkpoints.tokenizer_files import copy_tokenizer
from course_lib.checkpoints.torch_dtypes import TORCH
from course_lib.checkpoints.training_state import Weights, read_weights
from course_lib.errors import CourseError, one_line
from course_lib.files import final_name, read_record
from course_lib.generation.config import MAX_NEW_TOKENS, SAMPLING
from course_lib.models.causal import CausalConfig, CausalModel, model_config
from course_lib.models.families import BY_ARCHITECTURE, BY_MODEL_TYPE
from course_lib.pretrain.config import PretrainConfig
from course_lib.settings import config
from course_lib.training import checkpoint, log, run_dir
from course_lib.training.run_dir import CONFIG

HEAD = "lm_head.weight"
# The model card, which reveals nothing about the training machine: no paths and no speeds.
CARD = """---
{front}
---

# {title}

{warning}A {family} of {parameters:,} parameters, trained from scratch on Japanese text.
It sees {positions} tokens at most.

## How to use it

{usage}
## Training

{step:,} steps of {samples:,} samples of up to {length:,} tokens{loss}.
These weights are the {weights}, stored as {dtype}.

| input | documents | tokens |
| --- | --- | --- |
{inputs}
```yaml
{settings}```

## Limits

The model continues text; it knows nothing but which tokens follow which. What it writes may be false, offensive or
copied from its training text, and it has the slant of that text. It was not tuned to follow instructions, nor filtered.
Nothing but the loss was measured.
"""
# The first lines of a card, if the tokenizer takes prepared text.
WARNING = """**Do not send raw text to another server** (vLLM, llama.cpp): its tokenizer can give wrong tokens, without
an error. Send token ids, for example `prompt_token_ids` in vLLM, made with
`course_lib.pretrain.text_codec.load(FOLDER).prompt(text)`.

"""
PREPARED = """The tokenizer expects text that is normalized and segmented as its training text was, which
`preparation.json` records and `transformers` knows nothing of. The course's own command takes raw Japanese, and gives
it back:

```
course generate {name} 早稲田大学で
```

With `transformers` alone, let the course's codec make the ids: they begin with the token that precedes every document
in training, and what comes back needs nothing:

```python
from collections.abc import Collection
from pathlib import Path

import torch
from course_lib.pretrain import text_codec
from transformers import AutoModelForCausalLM

codec, model = text_codec.load(Path("{name}")), AutoModelForCausalLM.from_pretrained("{name}")
ids = codec.prompt("早稲田大学で")
print(codec.decode(model.generate(torch.tensor([ids]))[0, len(ids) :].tolist()))
```
"""
PLAIN = """```python
from transformers import pipeline

generator = pipeline("text-generation", "{name}")
print(generator("早稲田大学で")[0]["generated_text"])
```
"""
# The groups of settings that say how the model was trained.
SECTIONS = ("model", "optimizer", "precision")


def export(
    run: Path,
    target: Path,
    dtype: NumberFormat | None = None,
    license: str | None = None,
    step: int | None = None,
    settings_class: type[PretrainConfig] = PretrainConfig,
    without: Collection[str] = (),
) -> dict[str, Any]:
    """Export the model in the folder of a run to another folder; return facts about it.

    Args:
        run: folder of a run.
        target: folder of the model.
        dtype: number format of the weights; None: that of the training.
        license: license on the model card.
        step: checkpoint to export; None: the latest one.
        settings_class: that of the run's kind.
        without: names of trained weights that the model does not have.

    """
    found = checkpoint.to_export(run, step)
    step = checkpoint.step_of(found)
    settings = config.load(settings_class, run / CONFIG)
    tokenizer = load_tokenizer(run / "tokenizer")
    shape = model_config(settings.model, tokenizer.bos_token_id, tokenizer.eos_token_id)
    _complete(shape, tokenizer.pad_token_id)
    losses = [entry["loss"] for entry in log.read(run) if entry["kind"] == "eval" and entry["step"] <= step]
    loss = float(losses[-1]) if losses else None
    with run_dir.export_folder(run, target) as folder:
        weights = read_weights(found)
        stored = dtype or weights.trained_as
        model = _build(shape, weights, TORCH[stored], found, without)
        model.generation_config = _generation_defaults(shape, len(tokenizer))
        save_model(model, folder)
        copy_tokenizer(run / "tokenizer", folder, shape.max_position_embeddings)
        facts = {
            "step": step,
            "parameters": model.num_parameters(),
            "weights": weights.kind,
            "dtype": stored,
            "loss": loss,
        }
        (folder / "README.md").write_text(_card(target.absolute(), run, settings, license, facts), encoding="utf8")
    return facts


def _card(target: Path, run: Path, settings: PretrainConfig, license: str | None, facts: dict[str, Any]) -> str:
    """Return the model card, including its YAML front matter."""
    model, loss = settings.model, facts["loss"]
    family = BY_ARCHITECTURE[model.architecture]
    inputs = read_record(run / run_dir.DATA, {"inputs": dict})["inputs"].items()
    rows = (("/".join(Path(prefix).parts[-2:]), counts) for prefix, counts in inputs)
    front = ModelCardData(
        language="ja",
        license=license,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=[family.model_type, "japanese", "pretrained-from-scratch", "deepspeed"],
    )
    chosen, prepared = config.to_dict(settings), (run / "tokenizer" / "preparation.json").is_file()
    card = CARD.format(
        front=front.to_yaml(),
        title=final_name(target.parent) if target.name == run_dir.MODEL else target.name,
        family=family.title,
        positions=model.max_position_embeddings,
        warning=WARNING if prepared else "",
        usage=(PREPARED if prepared else PLAIN).format(name=target.name),
        samples=read_record(run / run_dir.DEEPSPEED, {"train_batch_size": int})["train_batch_size"],
        length=settings.data.seq_length,
        inputs="".join(f"| {name} | {each['documents']:,} | {each['tokens']:,} |\n" for name, each in rows),
        settings=yaml.safe_dump({section: chosen[section] for section in SECTIONS}, sort_keys=False),
        **facts | {"loss": "" if loss is None else f"; held-out loss: {loss:.4f} nats per token"},
    )
    return str(ModelCard(card))


def _complete(shape: CausalConfig, padding: int | None) -> None:
    """Set the id for padding, and names that older versions of transformers read."""
    shape.pad_token_id = shape.eos_token_id if padding is None else padding
    if isinstance(shape, GPTNeoXConfig):
        # Without rotary_pct they assume 0.25.
        shape.rotary_pct = shape.rope_parameters["partial_rotary_factor"]
        shape.rotary_emb_base = shape.rope_parameters["rope_theta"]
    elif shape.activation_function == "gelu_pytorch_tanh":
        shape.activation_function = "gelu_new"


def _build(
    shape: CausalConfig, weights: Weights, dtype: torch.dtype, source: Path, without: Collection[str] = ()
) -> CausalModel:
    """Build the model on the CPU."""
    tensors = {
        name: weight_files.converted(source, name, tensor.contiguous(), dtype)
        for name, tensor in weights.tensors.items()
        if name not in without
    }
    if shape.tie_word_embeddings:
        tensors.setdefault(HEAD, tensors[BY_MODEL_TYPE[shape.model_type].embedding])
    with torch.device("meta"):
        model: CausalModel = AutoModelForCausalLM.from_config(shape)
    try:
        model.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise CourseError(f"{source}: not the weights of this model: {one_line(error)}") from error
    model.tie_weights()
    return model.to(dtype)


def _generation_defaults(shape: CausalConfig, tokens: int) -> GenerationConfig:
    """Return the defaults of `course generate`; an empty prompt starts with eos, as documents do in training."""
    return GenerationConfig(
        do_sample=True,
        **SAMPLING,
        max_new_tokens=min(MAX_NEW_TOKENS, max(1, shape.max_position_embeddings // 2)),
        bos_token_id=shape.eos_token_id,
        eos_token_id=shape.eos_token_id,
        pad_token_id=shape.pad_token_id,
        # Padding entries in the vocabulary, which are not tokens.
        suppress_tokens=list(range(tokens, shape.vocab_size)) or None,
    )
