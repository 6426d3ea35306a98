"""A rehearsal of the course on a small copy of what the profiles download: published file layouts, random weights."""
