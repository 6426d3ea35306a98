"""A release: packages, archives of products, their checksums, and a rehearsal of upload and installation."""
