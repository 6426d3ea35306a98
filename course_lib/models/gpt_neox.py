"""GPT-NeoX: keys of its settings in a Hugging Face config.json, and names of its weights."""

from typing import Any

from course_lib.models.config import ModelConfig
from course_lib.models.family import Family

# Base for the wavelengths of the rotary positions, as in GPT-NeoX and rinna's models.
ROTARY_BASE = 10_000


def rope_parameters(share: float, base: float = ROTARY_BASE) -> dict[str, Any]:
    """Return the rotary parameters for a config.json; `share`: fraction of each head's dimensions that is rotated."""
    return {"rope_type": "default", "rope_theta": base, "partial_rotary_factor": share}


def _constants(model: ModelConfig) -> dict[str, Any]:
    return {
        "intermediate_size": model.ffn,
        # The exact GELU, not the tanh approximation.
        "hidden_act": "gelu",
        "rope_parameters": rope_parameters(model.rotary_pct),
        "tie_word_embeddings": False,
    }


GPT_NEOX = Family(
    architecture="gpt-neox",
    model_type="gpt_neox",
    title="GPT-NeoX",
    keys={
        "vocab_size": ("vocab_size",),
        "hidden_size": ("hidden_size",),
        "num_layers": ("num_hidden_layers",),
        "num_attention_heads": ("num_attention_heads",),
        "ffn_hidden_size": ("intermediate_size",),
        # Rotary positions have no parameters, so this value only records the training length [tokens].
        "max_position_embeddings": ("max_position_embeddings",),
        "use_parallel_residual": ("use_parallel_residual",),
        "hidden_dropout_prob": ("hidden_dropout",),
        "attention_probs_dropout_prob": ("attention_dropout",),
        "initializer_range": ("initializer_range",),
    },
    constants=_constants,
    embedding="gpt_neox.embed_in.weight",
    blocks="gpt_neox.layers",
)
