"""Products, chapters and archives of products."""
