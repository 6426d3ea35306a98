"""Chapter 7: FasterTransformer weights, read back, and served by Triton."""
