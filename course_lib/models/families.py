"""The model families GPT-2 and GPT-NeoX: their names, weights, and keys in a Hugging Face config.json."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from course_lib.models.config import ModelConfig
from course_lib.settings.config import build


@dataclass(frozen=True)
class Family:
    """A model family."""

    architecture: Literal["gpt2", "gpt-neox"]  # name in the settings
    model_type: str  # name in config.json
    title: str
    keys: Mapping[str, tuple[str, ...]]  # settings key → config.json keys, of which the first one is read
    constants: Callable[[ModelConfig], dict[str, Any]]  # further values in config.json
    embedding: str  # name of the embedding weight
    head: str  # name of the output layer's weight in a file
    blocks: str  # module path of the transformer blocks

    def renamed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings under their config.json keys; a key without a counterpart stays."""
        return {theirs: value for ours, value in settings.items() for theirs in self.keys.get(ours, (ours,))}

    def hf_values(self, model: ModelConfig) -> dict[str, Any]:
        """Return the config.json values for a model's settings."""
        return self.renamed({key: getattr(model, key) for key in self.keys}) | self.constants(model)

    def from_hf(self, content: Mapping[str, Any], path: Path) -> ModelConfig:
        """Return the settings in a config.json that affect the model's memory use."""
        known = {ours: content[names[0]] for ours, names in self.keys.items() if content.get(names[0]) is not None}
        return build(ModelConfig, known | {"architecture": self.architecture}, where=str(path))


def rope_parameters(share: float, base: float = 10_000) -> dict[str, Any]:
    """Return the rotary parameters for a config.json: the rotated share of each head, the base of wavelengths."""
    return {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": share}


GPT2 = Family(
    architecture="gpt2",
    model_type="gpt2",
    title="GPT-2",
    keys={
        "vocab_size": ("vocab_size",),
        "hidden_size": ("n_embd",),
        "num_layers": ("n_layer",),
        "num_attention_heads": ("n_head",),
        "ffn_hidden_size": ("n_inner",),
        "max_position_embeddings": ("n_positions",),
        "hidden_dropout_prob": ("resid_pdrop", "embd_pdrop"),
        "attention_probs_dropout_prob": ("attn_pdrop",),
        "initializer_range": ("initializer_range",),
    },
    # The tanh approximation of GELU, as in Megatron and FleetX; gelu_new is the same without a fused kernel.
    constants=lambda _: {"activation_function": "gelu_pytorch_tanh"},
    embedding="transformer.wte.weight",
    head="lm_head.weight",
    blocks="transformer.h",
)
GPT_NEOX = Family(
    architecture="gpt-neox",
    model_type="gpt_neox",
    title="GPT-NeoX",
    keys={name: (name,) for name in ("vocab_size", "hidden_size", "num_attention_heads", "initializer_range")}
    | {
        "num_layers": ("num_hidden_layers",),
        "ffn_hidden_size": ("intermediate_size",),
        # Rotary positions have no parameters, so this value only records the training length [tokens].
        "max_position_embeddings": ("max_position_embeddings",),
        "use_parallel_residual": ("use_parallel_residual",),
        "hidden_dropout_prob": ("hidden_dropout",),
        "attention_probs_dropout_prob": ("attention_dropout",),
    },
    constants=lambda model: {
        "intermediate_size": model.ffn,
        # The exact GELU, not the tanh approximation.
        "hidden_act": "gelu",
        "rope_parameters": rope_parameters(model.rotary_pct),
        "tie_word_embeddings": False,
    },
    embedding="gpt_neox.embed_in.weight",
    head="embed_out.weight",
    blocks="gpt_neox.layers",
)
BY_ARCHITECTURE: dict[str, Family] = {family.architecture: family for family in (GPT2, GPT_NEOX)}
BY_MODEL_TYPE: dict[str, Family] = {family.model_type: family for family in (GPT2, GPT_NEOX)}
