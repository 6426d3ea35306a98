"""Configuration for a GPTSAN model: the keys in the published `config.json`, and those added by this implementation."""

from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from course_lib.gptsan.shape import MODEL_TYPE


@strict
class GPTSanConfig(PreTrainedConfig):  # type: ignore[misc]
    """Shape and routing of a GPTSAN model. The defaults match the published 2.8-billion-parameter model.

    Three keys in the published configurations are read but have no effect:

    - `router_dtype`: the router always computes in fp32.
    - `initializer_factor`: weights are initialized as in the original code, tanreinama/GPTSAN.
    - `separator_token_id`: the prefix is marked by token types, not by a separator token.
    """

    model_type = MODEL_TYPE
    keys_to_ignore_at_inference = ("past_key_values", "router_logits", "balance_loss", "z_loss", "router_loss")
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "d_model",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
    }

    vocab_size: int = 36000
    max_position_embeddings: int = 1280
    d_model: int = 1024
    d_ff: int = 8192  # hidden width of an expert
    d_ext: int = 4096  # hidden width of an extra layer
    d_spout: int = 128  # width of the spout; 0: none
    num_switch_layers: int = 10
    num_ext_layers: int = 0
    num_heads: int = 16
    num_experts: int = 16
    dropout_rate: float | int = 0.0  # inside the experts
    layer_norm_epsilon: float = 1e-5
    router_bias: bool = False
    router_dtype: str = "float32"
    initializer_factor: float | int = 0.002
    output_router_logits: bool = False
    use_cache: bool = True
    tie_word_embeddings: bool = True
    separator_token_id: int | None = 35998
    bos_token_id: int | None = None
    pad_token_id: int | None = 35995
    eos_token_id: int | list[int] | None = 35999

    # Expert capacity, and the output for tokens that exceed it.
    # "zero", as in the original code: the capacity is an even share of a group of about 1024 tokens from the batch,
    # multiplied by a capacity factor. The expert output for tokens that exceed it is 0.
    # "identity", as in the transformers port: the capacity is `expert_capacity` tokens from each sequence. The output
    # for tokens that exceed it is x · router probability.
    overflow: Literal["zero", "identity"] = "zero"
    train_capacity_factor: float | int = 1.25
    eval_capacity_factor: float | int = 2.0
    expert_capacity: int = 128  # tokens per sequence and expert; used only by "identity"
    router_ignore_padding_tokens: bool = False  # True: padding is not routed and uses no capacity
    router_jitter_noise: float | int = 0.0  # in training: router input times noise from 1 ± this; original code: 0.01
    router_balance_coef: float | int = 1e-2
    router_z_coef: float | int = 0.0
    # Standard deviations for the weights of a new model, as in the original code. Each of the eight tanh layers in the
    # spout scales the signal by about spout_init_std · √d_spout (0.11 with the defaults), so a narrow spout needs a
    # larger value.
    embedding_init_std: float | int = 0.02
    spout_init_std: float | int = 0.01

    @property
    def num_layers(self) -> int:
        """Total number of switch layers and extra layers."""
        return self.num_switch_layers + self.num_ext_layers

    def __post_init__(self, **others: Any) -> None:
        # The published config.json contains num_layers, which is a property here.
        others.pop("num_layers", None)
        super().__post_init__(**others)

    def validate_architecture(self) -> None:
        """Check that `num_heads` divides `d_model`; transformers calls this method after setting the fields."""
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}")
