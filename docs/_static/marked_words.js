// The theme loads the search on every page, and Sphinx then leaves the words unmarked that were searched for.
document.addEventListener("DOMContentLoaded", () => {
  if (!document.getElementById("search-results")) SphinxHighlight.highlightSearchWords();
});
