"""GPTSAN as a transformers model: a prefix language model of switch layers, extra layers on top, steered by the spout.

    ids ─embedding + position─ switch layers ─(+ extra positions)─ extra layers ─ swish(projection) ─ tied head + bias

The names of the weights are those of the published checkpoint (`Tanrei/GPTSAN-japanese`). Where transformers' port of
4.27–4.57 differed from the original, this follows the original. Importing this module registers the auto classes.
Shapes: B sequences of T tokens, H = d_model, V = vocab_size, L = num_layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, Cache, DynamicCache, GenerationMixin
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import MoeModelOutputWithPast
from transformers.modeling_utils import PreTrainedModel
from transformers.utils import ModelOutput
from transformers.utils.generic import can_return_tuple

from course_lib.gptsan.attention import SelfAttention, prefix_lm_mask
from course_lib.gptsan.configuration import GPTSanConfig
from course_lib.gptsan.experts import FeedForward, Linear, router_losses


@dataclass
class GPTSanOutput(ModelOutput):  # type: ignore[misc]
    """What `GPTSanForCausalLM` returns; without labels `loss` is None."""

    loss: Tensor | None = None
    logits: Tensor | None = None  # [B, T, V]
    past_key_values: Cache | None = None
    hidden_states: tuple[Tensor, ...] | None = None  # [B, T, H]: embeddings, each layer, projection
    attentions: tuple[Tensor, ...] | None = None  # each layer's weights [B, heads, T, S]
    router_logits: tuple[Tensor, ...] | None = None  # each switch layer's [B, T, E]
    balance_loss: Tensor | None = None
    z_loss: Tensor | None = None
    router_loss: Tensor | None = None  # both by their coefficients; part of `loss`


class Table(nn.Embedding):
    """One vector per token or position, initialised as Normal(0, std): [...] → [..., H]."""

    def __init__(self, rows: int, width: int, std: float) -> None:
        super().__init__(rows, width)
        self.init_std = std


class Block(GradientCheckpointingLayer):  # type: ignore[misc]
    """One layer: attention, then experts (a switch layer) or a dense network (an extra layer)."""

    def __init__(self, config: GPTSanConfig, layer: int) -> None:
        super().__init__()
        self.self_attn = SelfAttention(config, layer)
        self.feed_forward = FeedForward(config, extra=layer >= config.num_switch_layers)

    def forward(
        self, x: Tensor, mask: Tensor | None, spout: Tensor | None, real: Tensor | None, past_key_values: Any = None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """[B, T, H] → ([B, T, H], attention weights, router logits)."""
        x, weights = self.self_attn(x, mask, spout, past_key_values)
        x, logits = self.feed_forward(x, real)
        return x, weights, logits


class GPTSanPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    """What transformers needs to know to initialise, load and place the weights."""

    config_class = GPTSanConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ("Block",)
    _skip_keys_device_placement = "past_key_values"
    _supports_sdpa = True

    def _init_weights(self, module: nn.Module) -> None:
        """As the original: Normal(0, 0.02) but for what says otherwise at its construction; norms 1 and 0."""
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
        """As in transformers; checkpoints that call the spout `sqout`, as the port's converter did, are loaded too."""
        named["key_mapping"] = {r"\bsqout\.": "spout."} | (named.get("key_mapping") or {})
        loaded = super().from_pretrained(*arguments, **named)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        model._weight_conversions = None  # and saved under our names
        return loaded


class GPTSanModel(GPTSanPreTrainedModel):
    """GPTSAN without its head."""

    _keys_to_ignore_on_load_unexpected = (r"^final_logits_bias$",)

    def __init__(self, config: GPTSanConfig) -> None:
        super().__init__(config)
        self.embed_tokens = Table(config.vocab_size, config.d_model, config.embedding_init_std)
        self.position_embeddings = Table(config.max_position_embeddings, config.d_model, 0.01)
        self.blocks = nn.ModuleList([Block(config, layer) for layer in range(config.num_layers)])
        if config.num_ext_layers:
            self.extra_position_embeddings = Table(config.max_position_embeddings, config.d_model, 0.0)
        self.last_project = Linear(config.d_model, config.d_model, bias=True)
        self.spout = spout_network(config) if config.d_spout else None
        self.post_init()

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        spout: Tensor | None = None,
        past_key_values: Cache | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> MoeModelOutputWithPast:
        """Ids [B, T] → `last_hidden_state` [B, T, H], the cache, the router logits and what else was asked for.

        `attention_mask` [B, tokens of the cache + T] is 0 at padding on the left, after which positions begin.
        `token_type_ids` [B, T] is 1 at the prefix, which sees both ways; with a spout also [B, T+1], as the port wants it.
        `spout` [B, d_spout] takes one slot before all tokens, so positions begin at 1; it goes into the cache, and where the
        cache has begun it is ignored. Without `use_cache` there is a cache if the config says so, but not in training.
        `hidden_states` are the embeddings, the output of each layer and the projection's.

        Raises:
            ValueError: a mask or the token types have the wrong width, there is no spout, or only eager attention has weights.
        """
        config, length = self.config, input_ids.shape[1]
        output_attentions = config.output_attentions if output_attentions is None else output_attentions
        output_hidden_states = config.output_hidden_states if output_hidden_states is None else output_hidden_states
        if output_attentions and config._attn_implementation != "eager":
            raise ValueError("attention weights need attn_implementation='eager'")
        use_cache = config.use_cache and not self.training if use_cache is None else use_cache
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache(config=config)
        past = past_key_values.get_seq_length() if past_key_values is not None else 0  # slots before these tokens
        slots: Sequence[Tensor | None] = [None] * config.num_layers
        if spout is not None and past == 0:
            slots, past = self.spout_slots(spout), 1
        check_widths(length, past, attention_mask, token_type_ids, spout is not None)
        mask = prefix_lm_mask(length, past, input_ids.device, attention_mask, token_type_ids)
        positions = token_positions(length, past, input_ids.device, attention_mask)
        positions = positions.clamp(0, config.max_position_embeddings - 1)
        real = routed_tokens(config, attention_mask, length)

        x = self.embed_tokens(input_ids) + self.position_embeddings(positions)
        states, attentions, router_logits = [x], [], []
        for layer, block in enumerate(self.blocks):
            if layer == config.num_switch_layers:
                x = x + self.extra_position_embeddings(positions)
            x, weights, logits = block(x, mask, slots[layer], real, past_key_values=past_key_values)
            states += [x] if output_hidden_states else []
            attentions += [weights] if output_attentions else []
            router_logits += [] if logits is None else [logits]
        x = F.silu(self.last_project(x))
        shown = (*states, x) if output_hidden_states else None
        seen = tuple(attentions) if output_attentions else None
        return MoeModelOutputWithPast(x, past_key_values, shown, seen, tuple(router_logits))

    def spout_slots(self, spout: Tensor) -> Sequence[Tensor]:
        """The key and value that the spout [B, d_spout] gives to each layer: L times [B, 2, heads, 1, d]."""
        if self.spout is None:
            raise ValueError("this model has no spout (d_spout is 0)")
        projected: Tensor = self.spout(spout.to(self.last_project.weight.dtype))  # [B, L·2·H]
        return projected.view(len(spout), self.config.num_layers, 2, self.config.num_heads, 1, -1).unbind(1)


class GPTSanForCausalLM(GPTSanPreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """GPTSAN with its head: the embeddings again, and one bias per token, a buffer that is loaded and not trained.

    With `generate`, the spout and the token types are arguments like the mask. To continue from a cache that began with a
    spout, pass the spout again. Experts have a capacity: where it cuts, a token's result depends on what is computed with it,
    and a cached pass, which computes few tokens at once, cuts less than a full one.
    """

    _tied_weights_keys: ClassVar[dict[str, str]] = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: GPTSanConfig) -> None:
        super().__init__(config)
        self.model = GPTSanModel(config)
        self.lm_head = Linear(config.d_model, config.vocab_size)
        self.register_buffer("final_logits_bias", torch.zeros(1, config.vocab_size))
        self.post_init()

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        spout: Tensor | None = None,
        past_key_values: Cache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_router_logits: bool | None = None,
        logits_to_keep: int = 0,
    ) -> GPTSanOutput:
        """As `GPTSanModel`, to logits [B, T, V], of the last `logits_to_keep` tokens only if there are no labels, and losses.

        `labels` [B, T] are the tokens themselves (shifted here), −100 where none is asked for. The loss is the mean over the
        others plus the routers' loss. With labels no cache is made unless told.
        """
        config = self.config
        use_cache = False if use_cache is None and labels is not None else use_cache
        asked = use_cache, output_attentions, output_hidden_states
        found = self.model(input_ids, attention_mask, token_type_ids, spout, past_key_values, *asked)
        balance, z = router_losses(found.router_logits, routed_tokens(config, attention_mask, input_ids.shape[1]))
        router_loss = config.router_balance_coef * balance + config.router_z_coef * z
        last = found.last_hidden_state[:, -logits_to_keep if labels is None else 0 :]
        logits = self.lm_head(last) + self.final_logits_bias
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten()) + router_loss
        wanted = config.output_router_logits if output_router_logits is None else output_router_logits
        parts = found.past_key_values, found.hidden_states, found.attentions, found.router_logits if wanted else None
        return GPTSanOutput(loss, logits, *parts, balance, z, router_loss)

    def prepare_inputs_for_generation(
        self, input_ids: Tensor, next_sequence_length: int | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """As in transformers, which takes a cache's slots for tokens: one of them is the spout. It knows `kwargs` by that name."""
        cache = kwargs.get("past_key_values")
        begun = kwargs.get("is_first_iteration") and cache is not None and cache.get_seq_length() > 0
        if begun and next_sequence_length is not None and kwargs.get("spout") is not None:
            next_sequence_length += 1
        return super().prepare_inputs_for_generation(input_ids, next_sequence_length, **kwargs)  # type: ignore[no-any-return]

    def _update_model_kwargs_for_generation(
        self, outputs: ModelOutput, model_kwargs: dict[str, Any], **named: Any
    ) -> dict[str, Any]:
        """As in transformers, which gives new tokens the type of the last one; no new token is part of the prefix."""
        types = model_kwargs.get("token_type_ids")
        updated: dict[str, Any] = super()._update_model_kwargs_for_generation(outputs, model_kwargs, **named)
        if types is not None:
            updated["token_type_ids"][:, types.shape[1] :] = 0
        return updated

    def _prepare_attention_mask_for_generation(self, inputs_tensor: Tensor, *_: Any) -> Tensor:
        """No mask given: all tokens count. Transformers would look for the padding token, which here is a word like others."""
        return torch.ones_like(inputs_tensor)


def spout_network(config: GPTSanConfig) -> nn.Sequential:
    """Eight times linear and tanh, then to a key and a value in each layer: [B, d_spout] → [B, L·2·H]."""
    std = config.spout_init_std
    hidden = [part for _ in range(8) for part in (Linear(config.d_spout, config.d_spout, std=std), nn.Tanh())]
    return nn.Sequential(*hidden, Linear(config.d_spout, config.num_layers * 2 * config.d_model, std=std))


def token_positions(length: int, past: int, device: torch.device, attention_mask: Tensor | None) -> Tensor:
    """Positions [B or 1, T] of the tokens after `past` slots, counted without the padding on the left (negative there)."""
    positions = torch.arange(past, past + length, device=device)[None]
    return positions if attention_mask is None else positions - (attention_mask == 0).cumprod(1).sum(1, keepdim=True)


def routed_tokens(config: GPTSanConfig, attention_mask: Tensor | None, length: int) -> Tensor | None:
    """Which of the tokens [B, T] the experts take: None for all; all but padding where the config leaves that out."""
    if attention_mask is None or not config.router_ignore_padding_tokens:
        return None
    return attention_mask[:, -length:].bool()


def check_widths(length: int, past: int, mask: Tensor | None, types: Tensor | None, spout: bool) -> None:
    """Refuses a mask that leaves out tokens so far (one of the `past` slots may be a spout's), and types that leave out new ones."""
    tokens = {past + length - 1} if spout else {past + length, past + length - (past > 0)}
    if mask is not None and mask.shape[1] not in tokens:
        raise ValueError(f"attention_mask has {mask.shape[1]} columns where all tokens so far are {max(tokens)}")
    if types is not None and types.shape[1] not in (length, length + 1):
        raise ValueError(f"token_type_ids has {types.shape[1]} columns for {length} tokens")


AutoConfig.register(GPTSanConfig.model_type, GPTSanConfig, exist_ok=True)
AutoModel.register(GPTSanConfig, GPTSanModel, exist_ok=True)
AutoModelForCausalLM.register(GPTSanConfig, GPTSanForCausalLM, exist_ok=True)
