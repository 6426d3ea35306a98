"""Chapter 7: export to FasterTransformer, reading the exported folder, and serving it with Triton."""
