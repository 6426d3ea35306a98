"""Chapter 5: GPTSAN, a Japanese Switch Transformer with frozen switch layers, an extra stage and the spout."""
