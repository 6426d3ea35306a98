"""What only authors use: the common cells of notebooks, catalogues, and editions in other languages."""
