"""GPT-2 and GPT-NeoX: settings, Hugging Face models, frozen base models for prefixes, and training memory."""
