"""Evaluation of language models by bits per character of raw text and by minimal pairs. Callers pass in the models."""
