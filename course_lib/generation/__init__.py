"""Text generation with causal language models; codec and prefixes are arguments."""
