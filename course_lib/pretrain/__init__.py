"""Chapter 4: tokens on disk, GPT-2 pretraining with DeepSpeed ZeRO, and what comes out of it."""
