"""Chapter 4: token files, pretraining with DeepSpeed ZeRO, model export and conversion, and text generation."""
