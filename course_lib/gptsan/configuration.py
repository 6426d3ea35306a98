"""The shape of a GPTSAN, under the names of the published `config.json`, and what this implementation adds to it."""

from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig


@strict
class GPTSanConfig(PreTrainedConfig):  # type: ignore[misc]
    """Shape and routing of a GPTSAN; the defaults are the published 2.8-billion-parameter model.

    Read for the published configs, without effect: `router_dtype` (the router computes in fp32), `initializer_factor` (the original's
    initialisation is used) and `separator_token_id` (the prefix comes by token types).

    Raises:
        StrictDataclassError: a field has another type, or `num_heads` does not divide `d_model`.
    """

    model_type = "gptsan-japanese"
    keys_to_ignore_at_inference = ("past_key_values", "router_logits", "balance_loss", "z_loss", "router_loss")
    attribute_map: ClassVar[dict[str, str]] = {"hidden_size": "d_model", "num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"}  # fmt: skip

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

    # What becomes of tokens that an expert has no room for. "zero", the original: it takes a factor times an even share of each
    # 1024 or so of a batch, and adds nothing to others. "identity", the port: `expert_capacity` of a sequence, others x · probability.
    overflow: Literal["zero", "identity"] = "zero"
    train_capacity_factor: float | int = 1.25
    eval_capacity_factor: float | int = 2.0
    expert_capacity: int = 128  # tokens per sequence and expert, for "identity" only
    router_ignore_padding_tokens: bool = False  # padding goes to no expert and takes no capacity
    router_jitter_noise: float | int = 0.0  # in training, the router's input times 1 ± this; the original's is 0.01
    router_balance_coef: float | int = 1e-2
    router_z_coef: float | int = 0.0
    # Standard deviations of a new model, the original's; eight layers of tanh at 0.01 pass next to nothing of a narrow spout.
    embedding_init_std: float | int = 0.02
    spout_init_std: float | int = 0.01

    @property
    def num_layers(self) -> int:
        """Switch layers and extra layers together."""
        return self.num_switch_layers + self.num_ext_layers

    def __post_init__(self, **others: Any) -> None:
        others.pop("num_layers", None)  # published, and derived
        super().__post_init__(**others)

    def validate_architecture(self) -> None:
        """Called by transformers once the fields are set."""
        if self.d_model % self.num_heads:
            raise ValueError(f"d_model {self.d_model} is not a multiple of num_heads {self.num_heads}")
