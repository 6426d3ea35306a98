"""Model card (README.md) for an exported model, as shown on the Hugging Face Hub.

The card reveals nothing about the training machine: no paths and no speeds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from course_lib.models.causal import Shape
from course_lib.models.families import BY_MODEL_TYPE
from course_lib.pretrain.config import PretrainConfig

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


@dataclass(frozen=True)
class Facts:
    """The model facts shown on the card."""

    title: str
    name: str  # model folder name
    parameters: int
    shape: Shape
    step: int | None
    weights: str  # source of the weights, such as "fp32 master weights"
    dtype: str  # data type of the stored weights
    license: str | None
    settings: PretrainConfig | None
    samples: int | None  # samples per step, summed over all ranks
    data: dict[str, Any]
    log: list[dict[str, Any]]
    prepared: bool  # whether the folder has the course's preparation.json
    curves: bool  # whether the folder has curves.png

    @property
    def loss(self) -> float | None:
        """Last held-out loss [nats per token], or None if none was logged."""
        losses = [entry["loss"] for entry in self.log if entry["kind"] == "eval" and entry["loss"] is not None]
        return float(losses[-1]) if losses else None


def text(facts: Facts) -> str:
    """Return the model card text, including its YAML front matter."""
    shape = facts.shape
    front = ModelCardData(
        language="ja",
        license=facts.license,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=[shape.model_type, "japanese", "pretrained-from-scratch", "deepspeed"],
    )
    values = {
        "title": facts.title, "name": facts.name, "family": BY_MODEL_TYPE[shape.model_type].title,
        "parameters": facts.parameters, "layers": shape.num_hidden_layers, "width": shape.hidden_size,
        "heads": shape.num_attention_heads, "positions": shape.max_position_embeddings, "rows": shape.vocab_size,
    }  # fmt: skip
    usage = PREPARED if facts.prepared else PLAIN
    parts = [INTRODUCTION.format(**values), usage.format(**values), _data(facts.data), _training(facts), _curves(facts)]
    body = "\n".join(part for part in [*parts, LIMITS.format(**values)] if part)
    return str(ModelCard(f"---\n{front.to_yaml()}\n---\n\n{body}"))


def _data(data: dict[str, Any]) -> str:
    """Return the training data section, based on the run's data.json; empty if the inputs are unknown."""
    inputs: dict[str, dict[str, Any]] = data.get("inputs") or {}
    if not inputs:
        return ""
    rows = [
        ("/".join(Path(prefix).parts[-2:]), _number(facts.get("documents")), _number(facts.get("tokens")))
        for prefix, facts in inputs.items()
    ]
    drawn = f"\nTrained on {data['train_tokens']:,} tokens of these.\n" if data.get("train_tokens") else ""
    return "## Data\n\n" + _table(("input", "documents", "tokens"), rows) + drawn


def _training(facts: Facts) -> str:
    rows: list[tuple[str, ...]] = [("steps", _number(facts.step))] if facts.step is not None else []
    if facts.settings:
        optimizer, rate, model = facts.settings.optimizer, facts.settings.optimizer.lr, facts.settings.model
        length = facts.settings.data.seq_length
        betas = f"β {optimizer.beta1} and {optimizer.beta2}"
        rows += [
            ("sequence length [tokens]", _number(length)),
            ("samples per step", _number(facts.samples)),
            ("tokens seen", _number(facts.samples and facts.step and facts.step * facts.samples * length)),
            ("optimizer", f"AdamW, {betas}, decay {optimizer.weight_decay}, clipped at {optimizer.grad_clip}"),
            ("learning rate", f"linear warm-up to {rate.max}, {rate.decay} to {rate.min}"),
            ("dropout", f"{model.hidden_dropout_prob}, attention {model.attention_probs_dropout_prob}"),
            ("sharding", f"DeepSpeed ZeRO stage {facts.settings.zero.stage}"),
            ("computed in", facts.settings.precision.dtype),
            ("seed", str(facts.settings.engine.seed)),
        ]
    rows.append(("these weights", f"{facts.weights}, stored as {facts.dtype}"))
    return "## Training\n\n" + _table(("", ""), [row for row in rows if row[1] != "–"])


def _curves(facts: Facts) -> str:
    """Return the loss section; empty if there is neither a held-out loss nor a figure."""
    if facts.loss is None and not facts.curves:
        return ""
    loss = f"Held-out loss: {facts.loss:.4f} nats per token.\n" if facts.loss is not None else ""
    picture = "![Loss over the steps of training](curves.png)\n" if facts.curves else ""
    return "\n".join(part for part in ("## Loss\n", loss, picture) if part)


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ("---",) * len(head), *rows))


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "–"
