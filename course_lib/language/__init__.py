"""The texts of the course in the reader's language."""
