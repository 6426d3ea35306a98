"""Chapter 1, the corpus: downloading dumps, extracting Wikipedia articles and cleaning web text."""
