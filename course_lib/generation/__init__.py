"""Text generation with causal language models. The codec and the prefixes are passed in by the caller."""
