"""Chapter 1: the corpus. Downloading dumps, extracting the encyclopaedia, cleaning web text."""
