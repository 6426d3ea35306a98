"""A small world: a generator of simple Japanese texts with known facts and entropy, and a checker of texts."""
