"""Chapter 1, the corpus: raw Japanese text becomes documents, one JSON object a line, with a report of what goes.

Three ways, each from its first module to its last:

* Wikipedia: download → dump → wikipedia → wikitext (with templates, superscripts, literals and the .tsv tables)
* web text: webfile → webtext → mask, filters, quality → dedup → repeats
* Aozora Bunko: aozora → aozora_work → aozora_notation

config has the settings and report the counts of all three; products builds what a profile needs of the first two.
figures, diagrams and banding are for the notebook alone.
"""
