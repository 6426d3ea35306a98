"""A small world: a generator of simple Japanese texts whose facts and whose entropy are known, and a checker of texts."""
