"""GPTSAN as a transformers model: a prefix language model with switch layers and extra layers, controlled by the spout.

The spout is a vector for each sequence. A small network turns it into one additional key and value in each layer.

    ids ─embedding + position─ switch layers ─(+ extra positions)─ extra layers ─ swish(projection) ─ tied head + bias

The weights have the same names as in the published checkpoint (`Tanrei/GPTSAN-japanese`). transformers 4.27 to 4.57
contained a port of the model; where it differs from the original code, this module follows the original code.
Importing this module registers the model with the transformers auto classes.

Shapes: B sequences of T tokens, H = d_model, V = vocab_size, L = num_layers, E = num_experts, S = key/value slots.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, Cache, DynamicCache
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import MoeCausalLMOutputWithPast, MoeModelOutputWithPast
from transformers.modeling_utils import PreTrainedModel

from course_lib.gptsan.attention import SelfAttention, prefix_lm_mask
from course_lib.gptsan.experts import FeedForward, Linear, balance_loss
from course_lib.gptsan.hf_config import GPTSanConfig
from course_lib.gptsan.shape import SPOUT_LAYERS


class Table(nn.Embedding):
    """Embedding table, initialized from Normal(0, std²): [...] → [..., H]."""

    def __init__(self, rows: int, width: int, std: float) -> None:
        super().__init__(rows, width)
        self.init_std = std


class Block(GradientCheckpointingLayer):  # type: ignore[misc]
    """One layer: attention, followed by a feed-forward part with experts (switch layer) or without (extra layer)."""

    def __init__(self, config: GPTSanConfig, layer: int) -> None:
        super().__init__()
        self.self_attn = SelfAttention(config, layer)
        self.feed_forward = FeedForward(config, extra=layer >= config.num_switch_layers)

    def forward(
        self, x: Tensor, mask: Tensor | None, spout: Tensor | None, past_key_values: Any = None
    ) -> tuple[Tensor, Tensor | None]:
        """Apply the layer: [B, T, H] → ([B, T, H], router logits or None). Other arguments: see `Attention.forward`."""
        output: tuple[Tensor, Tensor | None] = self.feed_forward(self.self_attn(x, mask, spout, past_key_values))
        return output


class GPTSanPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    """Base class that defines how weights are initialized, loaded and placed on devices."""

    config_class = GPTSanConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ("Block",)
    _skip_keys_device_placement = "past_key_values"
    _supports_sdpa = True

    def _init_weights(self, module: nn.Module) -> None:
        """Initialize a module as the original code does: Normal(0, std²) with std `init_std` of the module, or 0.02."""
        if isinstance(module, nn.Linear | nn.Embedding):
            init.normal_(module.weight, std=getattr(module, "init_std", 0.02))
            if getattr(module, "bias", None) is not None:
                init.normal_(module.bias, std=getattr(module, "init_bias_std", 0.0))
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, GPTSanForCausalLM):
            init.zeros_(module.final_logits_bias)

    @classmethod
    def from_pretrained(cls, *arguments: Any, **named: Any) -> Any:
        """Load a model, also from the transformers converter, which names the spout weights `sqout`."""
        named["key_mapping"] = {r"\bsqout\.": "spout."} | (named.get("key_mapping") or {})
        loaded = super().from_pretrained(*arguments, **named)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        # Otherwise, transformers would rename the weights back to `sqout` when saving them.
        model._weight_conversions = None
        return loaded


class GPTSanModel(GPTSanPreTrainedModel):
    """GPTSAN model without the language-model head."""

    def __init__(self, config: GPTSanConfig) -> None:
        super().__init__(config)
        self.embed_tokens = Table(config.vocab_size, config.d_model, config.embedding_init_std)
        self.position_embeddings = Table(config.max_position_embeddings, config.d_model, 0.01)
        self.blocks = nn.ModuleList([Block(config, layer) for layer in range(config.num_layers)])
        if config.num_ext_layers:
            self.extra_position_embeddings = Table(config.max_position_embeddings, config.d_model, 0.0)
        self.last_project = Linear(config.d_model, config.d_model, bias=True)
        self.spout: nn.Sequential | None = None
        if width := config.d_spout:
            std = config.spout_init_std
            hidden = [part for _ in range(SPOUT_LAYERS) for part in (Linear(width, width, std=std), nn.Tanh())]
            # [B, d_spout] → [B, L·2·H]: a key and a value for each layer
            self.spout = nn.Sequential(*hidden, Linear(width, config.num_layers * 2 * config.d_model, std=std))
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        spout: Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
    ) -> MoeModelOutputWithPast:
        """Compute `last_hidden_state` [B, T, H], the key/value cache and the router logits.

        Args:
            input_ids: Token ids [B, T].
            attention_mask: [B, tokens in the cache + T], with or without a column for the spout, 0 at padding. Padding
                is on the left; positions are counted from the first token after it.
            token_type_ids: [B, T], 1 in the prefix, whose tokens attend to each other in both directions. With a spout,
                [B, T+1] is also allowed, as in the transformers port.
            spout: [B, d_spout]. The spout takes one slot before all tokens, so positions begin at 1. It is stored in
                the cache; if the cache is not empty, `spout` is ignored.
            past_key_values: Key/value cache for earlier tokens.
            use_cache: Whether to return a cache. Defaults to the config value, or to False in training.
        """
        config, length = self.config, input_ids.shape[1]
        use_cache = config.use_cache and not self.training if use_cache is None else use_cache
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=config)
        slots_before = past_key_values.get_seq_length() if past_key_values is not None else 0
        spout_kv: Sequence[Tensor | None] = [None] * config.num_layers
        if spout is not None and slots_before == 0:
            spout_kv, slots_before = self.spout_slots(spout), 1
        slots_after = slots_before + length
        # One of the slots before the new tokens may be the spout's.
        allowed = (slots_after, slots_after - 1) if slots_before else (slots_after,)
        if attention_mask is not None and attention_mask.shape[1] not in allowed:
            raise ValueError(
                f"attention_mask: has {attention_mask.shape[1]} columns, but there are {length} new tokens"
            )
        mask = prefix_lm_mask(length, slots_before, input_ids.device, attention_mask, token_type_ids)
        positions = torch.arange(slots_before, slots_after, device=input_ids.device)[None]
        if attention_mask is not None:
            # Padding on the left is not counted.
            positions = positions - (attention_mask == 0).cumprod(1).sum(1, keepdim=True)
        positions = positions.clamp(0, config.max_position_embeddings - 1)

        x = self.embed_tokens(input_ids) + self.position_embeddings(positions)
        router_logits = []
        for layer, block in enumerate(self.blocks):
            if layer == config.num_switch_layers:
                x = x + self.extra_position_embeddings(positions)
            x, logits = block(x, mask, spout_kv[layer], past_key_values=past_key_values)
            router_logits += [] if logits is None else [logits]
        x = F.silu(self.last_project(x))
        return MoeModelOutputWithPast(x, past_key_values, router_logits=tuple(router_logits))

    def spout_slots(self, spout: Tensor) -> Sequence[Tensor]:
        """Compute the spout key and value for each layer: [B, d_spout] → L tensors [B, 2, heads, 1, d]."""
        if self.spout is None:
            raise ValueError("this model has no spout (d_spout is 0)")
        # [B, L·2·H]
        projected: Tensor = self.spout(spout.to(self.last_project.weight.dtype))
        return projected.view(len(spout), self.config.num_layers, 2, self.config.num_heads, 1, -1).unbind(1)


class GPTSanForCausalLM(GPTSanPreTrainedModel):
    """GPTSAN model with the language-model head.

    The weight of the head is tied to the embedding. Its bias, one value per vocabulary entry, is a buffer: it is
    loaded, but not trained. If an expert overflows, the result for a token depends on the other tokens in the same
    forward pass. generate.py writes texts, run.py has the loss.
    """

    _tied_weights_keys: ClassVar[dict[str, str]] = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: GPTSanConfig) -> None:
        super().__init__(config)
        self.model = GPTSanModel(config)
        self.lm_head = Linear(config.d_model, config.vocab_size)
        self.register_buffer("final_logits_bias", torch.zeros(1, config.vocab_size))
        self.post_init()

    def forward(self, input_ids: Tensor, logits_to_keep: int = 0, **inputs: Any) -> MoeCausalLMOutputWithPast:
        """Compute the logits [B, T, V], those of the last `logits_to_keep` tokens if it is not 0, and the router loss.

        `aux_loss` is the load-balancing loss of the routers times its coefficient. Other arguments: see `GPTSanModel`.
        """
        output = self.model(input_ids, **inputs)
        logits = self.lm_head(output.last_hidden_state[:, -logits_to_keep:]) + self.final_logits_bias
        return MoeCausalLMOutputWithPast(
            logits=logits,
            past_key_values=output.past_key_values,
            router_logits=output.router_logits,
            aux_loss=self.config.router_balance_coef * balance_loss(output.router_logits),
        )


AutoConfig.register(GPTSanConfig.model_type, GPTSanConfig, exist_ok=True)
AutoModelForCausalLM.register(GPTSanConfig, GPTSanForCausalLM, exist_ok=True)
