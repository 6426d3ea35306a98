"""Chapter 7: export to FasterTransformer and CTranslate2, and serving the exported folder with Triton."""
