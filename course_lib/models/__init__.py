"""GPT-2 and GPT-NeoX: settings, Hugging Face models, and frozen base models for prefixes."""
