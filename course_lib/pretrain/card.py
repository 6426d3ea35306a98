"""Model card (README.md) for an exported model, as shown on the Hugging Face Hub.

The card reveals nothing about the training machine: no paths and no speeds.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from course_lib.models.causal import CausalModel
from course_lib.models.families import BY_MODEL_TYPE
from course_lib.pretrain.config import PretrainConfig
from course_lib.training.run_dir import MODEL

CURVES = "curves.png"

INTRODUCTION = """# {title}

A {family} of {parameters:,} parameters ({layers} layers of width {width}, {heads} heads, \
{positions} positions, {rows:,} entries),
trained from scratch on Japanese text.
"""
PREPARED = """## How to use it

The tokenizer expects text that is normalized and segmented as its training text was, \
which `preparation.json` records and
`transformers` knows nothing of. The course's own command takes raw Japanese, and gives it back:

```
course generate {name} 早稲田大学で
```

With `transformers` alone, prepare the prompt first; what comes back needs nothing:

```python
from pathlib import Path

from course_lib.subword import folder
from transformers import pipeline

prompt = folder.load(Path("{name}")).prepare("早稲田大学で")
generator = pipeline("text-generation", "{name}")
print(generator(prompt, return_full_text=False)[0]["generated_text"])
```
"""
PLAIN = """## How to use it

```python
from transformers import pipeline

generator = pipeline("text-generation", "{name}")
print(generator("早稲田大学で")[0]["generated_text"])
```
"""
LIMITS = """## Limits

The model continues text; it knows nothing but which tokens follow which. \
What it writes may be false, offensive or copied from its
training text, and it has the slant of that text. \
It was not tuned to follow instructions, nor filtered. It sees {positions} tokens at most.
Nothing but the loss was measured.
"""


def text(
    model: CausalModel,
    folder: Path,
    target: Path,
    license: str | None,
    data: dict[str, Any],
    training: Iterable[tuple[str, str]],
    loss: float | None,
) -> str:
    """Return the model card, including its YAML front matter.

    `folder` holds the exported files, which will move to `target`. `data` is the run's data.json, `training` the rows
    of the training table, and `loss` the last held-out loss [nats per token].
    """
    shape = model.config
    front = ModelCardData(
        language="ja",
        license=license,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=[shape.model_type, "japanese", "pretrained-from-scratch", "deepspeed"],
    )
    values = {
        "title": target.parent.name if target.name == MODEL else target.name, "name": target.name,
        "family": BY_MODEL_TYPE[shape.model_type].title, "parameters": model.num_parameters(),
        "layers": shape.num_hidden_layers, "width": shape.hidden_size, "heads": shape.num_attention_heads,
        "positions": shape.max_position_embeddings, "rows": shape.vocab_size,
    }  # fmt: skip
    usage = PREPARED if (folder / "preparation.json").is_file() else PLAIN
    measured = f"Held-out loss: {loss:.4f} nats per token.\n" if loss is not None else ""
    picture = f"![Loss over the steps of training]({CURVES})\n" if (folder / CURVES).is_file() else ""
    parts = [
        INTRODUCTION.format(**values), usage.format(**values), _data(data),
        "## Training\n\n" + _table(("", ""), training), "## Loss\n" if measured or picture else "", measured, picture,
        LIMITS.format(**values),
    ]  # fmt: skip
    body = "\n".join(filter(None, parts))
    return str(ModelCard(f"---\n{front.to_yaml()}\n---\n\n{body}"))


def training_rows(settings: PretrainConfig | None, step: int | None, samples: int | None) -> list[tuple[str, str]]:
    """Return what is known about a run as rows of a table; `samples` is the global batch."""
    rows = [("steps", f"{step:,}")] if step is not None else []
    if settings is None:
        return rows
    optimizer, rate, model, length = settings.optimizer, settings.optimizer.lr, settings.model, settings.data.seq_length
    rows.append(("sequence length [tokens]", f"{length:,}"))
    if samples:
        rows.append(("samples per step", f"{samples:,}"))
    if samples and step:
        rows.append(("tokens seen", f"{step * samples * length:,}"))
    betas = f"β {optimizer.beta1} and {optimizer.beta2}"
    rows += [
        ("optimizer", f"AdamW, {betas}, decay {optimizer.weight_decay}, clipped at {optimizer.grad_clip}"),
        ("learning rate", f"linear warm-up to {rate.max}, {rate.decay} to {rate.min}"),
        ("dropout", f"{model.hidden_dropout_prob}, attention {model.attention_probs_dropout_prob}"),
        ("sharding", f"DeepSpeed ZeRO stage {settings.zero.stage}"),
        ("computed in", settings.precision.dtype),
        ("seed", str(settings.engine.seed)),
    ]
    return rows


def _data(data: dict[str, Any]) -> str:
    """Return the training data section, based on the run's data.json; empty if the inputs are unknown."""
    if not data.get("inputs"):
        return ""
    inputs = (("/".join(Path(prefix).parts[-2:]), facts) for prefix, facts in data["inputs"].items())
    rows = [(name, f"{facts['documents']:,}", f"{facts['tokens']:,}") for name, facts in inputs]
    drawn = f"\nTrained on {data['train_tokens']:,} tokens of these.\n" if data.get("train_tokens") else ""
    return "## Data\n\n" + _table(("input", "documents", "tokens"), rows) + drawn


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ("---",) * len(head), *rows))
