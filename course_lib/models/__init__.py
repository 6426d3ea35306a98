"""GPT-2 and GPT-NeoX: their settings, their Hugging Face models, and what their training needs in memory."""
