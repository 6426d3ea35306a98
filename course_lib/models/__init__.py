"""GPT-2 and GPT-NeoX: settings, Hugging Face models, frozen bases of prefixes, and the memory that training needs."""
