"""Chapter 4: token files, pretraining with DeepSpeed ZeRO, export and conversion of models, text generation."""
