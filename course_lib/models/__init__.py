"""GPT-2 and GPT-NeoX: settings, Hugging Face models, frozen base models for prefixes, and memory needed for
training.
"""
