"""GPT-2 and GPT-NeoX: settings, Hugging Face models, and the memory that training needs."""
