// The order of search results: the glossary, chapters and commands before the many names of the library.
var Scorer = {
  score: ([docname, , , , score]) => score + (docname.startsWith("notebooks/") ? 20 : docname.startsWith("docs/reference/library") ? -10 : 0),
  objNameMatch: 11,
  objPartialMatch: 2,
  objPrio: { 0: 5, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
