"""Chapter 1, the corpus: raw Japanese text becomes documents, one JSON object a line, with a report of what goes.

Three ways, each from its first module to its last:

* Wikipedia: download → dump → wikipedia → wikitext (with templates, superscripts, literals and the .tsv tables)
* web text: webfile → webtext → mask, filters → dedup → repeats
* Aozora Bunko: aozora → aozora_work → aozora_notation

config has the settings and report the counts of all three; products builds what a profile needs of the first two.
figures, diagrams and banding are for the notebook alone.

A *piece* is a stretch of bytes or text that is cut out to be processed by itself: of a dump (dump.Piece), of a work
(aozora.pieces). A *part* is one of several files: those into which Wikimedia also splits a dump
(`corpus.sources.part`), and those that aozora writes, each with the works of a batch of files. A file that ends in
.part is an unfinished download.
"""
