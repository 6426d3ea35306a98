"""GPT-2: its settings in a config.json of Hugging Face, and the names of its weights."""

from course_lib.models.family import Family

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
    # The tanh approximation of GELU, as in Megatron and FleetX. gelu_new is the same function without a fused kernel.
    constants=lambda _: {"activation_function": "gelu_pytorch_tanh"},
    embedding="transformer.wte.weight",
    blocks="transformer.h",
)
