"""Weights and tokenizers on disk: Hugging Face folders, DeepSpeed shards, safe loading, the Hub."""
