"""GPT-2: keys of its settings in a Hugging Face config.json, and names of its weights."""

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
    # Use the tanh approximation of GELU, as Megatron and FleetX do. gelu_new is the same function without a fused
    # kernel.
    constants=lambda _: {"activation_function": "gelu_pytorch_tanh"},
    embedding="transformer.wte.weight",
    blocks="transformer.h",
)
