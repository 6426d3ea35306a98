"""The glossary: complete entries, every listed term that a notebook uses, and a link at its first use in each notebook."""

import copy
import re

import nbformat
import pytest

from tests.notebooks import terms
from tests.notebooks.terms import LINK, Use, slug

TEXT = terms.GLOSSARY.read_text(encoding="utf8")
ENTRIES = {entry.term: entry for entry in terms.entries(TEXT)}
KANA = re.compile(r"[ぁ-ゖァ-ヺー・]+")
# A word that the notebooks do not use → the term that they use for it.
OTHER_WORDS = {
    r"altered cop(?:y|ies)": "near duplicate",
    r"fine-tun\w+": "finetuning",
    r"feed-?forward": "MLP",
    r"two averages": "two moments",
    r"personal data": "personal information",
    r"learning rate schedule": "learning-rate schedule",
    r"minibatch(?:es)?": "batch",
    r"kv[- ]cache": "key/value cache",
    r"heldout": "held-out",
}


@pytest.fixture(scope="module")
def documents() -> dict[str, nbformat.NotebookNode]:
    return terms.read_all()


@pytest.fixture(scope="module")
def uses(documents: dict[str, nbformat.NotebookNode]) -> dict[str, list[Use]]:
    """Term → all its uses, in the order of the course."""
    found: dict[str, list[Use]] = {}
    for notebook, document in documents.items():
        for use in terms.uses(notebook, document):
            found.setdefault(use.term, []).append(use)
    return found


def problems(notebook: str, document: nbformat.NotebookNode) -> list[str]:
    """What is wrong with the links of a notebook to the glossary, as sentences."""
    sources = {cell.id: cell.source for cell in document.cells if cell.cell_type == "markdown"}
    found, seen, linked = [], set(), 0
    for use in terms.uses(notebook, document):
        words = f"{notebook}, cell {use.cell}: {sources[use.cell][use.start : use.end]!r}"
        if use.term not in ENTRIES:
            found.append(f"{words}: docs/glossary.md has no entry {use.term!r}")
        elif use.term in seen:
            if use.anchor is not None:
                found.append(f"{words} is linked and not the first use of {use.term!r}")
        elif use.anchor != slug(use.term):
            found.append(f"{words} is the first use of {use.term!r}; link it to {terms.ADDRESS}{slug(use.term)}")
        seen.add(use.term)
        linked += use.anchor is not None
    targets = [target for source in sources.values() for _, target in LINK.findall(source) if "glossary.md" in target]
    anchors = {terms.ADDRESS + slug(term) for term in ENTRIES}
    found += [f"{notebook}: the link {target} leads to no entry" for target in targets if target not in anchors]
    if linked != len(targets):
        found.append(f"{notebook}: {len(targets) - linked} links to the glossary stand at no use of a term")
    return found


@pytest.mark.parametrize("notebook", terms.NOTEBOOKS)
def test_the_first_use_of_each_term_links_to_it(notebook: str, documents: dict[str, nbformat.NotebookNode]) -> None:
    assert problems(notebook, documents[notebook]) == []


def spoil(change: str, document: nbformat.NotebookNode) -> nbformat.NotebookNode:
    document = copy.deepcopy(document)
    cell = next(cell for cell in document.cells if "[MinHash](" in cell.source)
    match change:
        case "no link":
            cell.source = re.sub(r"\[MinHash\]\([^)]*\)", "MinHash", cell.source)
        case "no entry":
            document.cells[-1].source += " Stop words go."
        case "wrong anchor":
            cell.source = cell.source.replace("#minhash)", "#band)")
        case "no anchor":
            cell.source = cell.source.replace("#minhash)", "#hashmin)")
        case "second":
            document.cells[-1].source += f" [MinHash]({terms.ADDRESS}minhash)"
        case "heading":
            document.cells[-1].source += f"\n\n### [MinHash]({terms.ADDRESS}minhash)"
        case "code":
            document.cells[-1].source += f"\n\n`[MinHash]({terms.ADDRESS}minhash)`"
    return document


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("no link", "is the first use of 'MinHash'; link it to ../docs/glossary.md#minhash"),
        ("no entry", "'Stop words': docs/glossary.md has no entry 'stop word'"),
        ("wrong anchor", "is the first use of 'MinHash'; link it to ../docs/glossary.md#minhash"),
        ("no anchor", "#hashmin leads to no entry"),
        ("second", "is linked and not the first use of 'MinHash'"),
        ("heading", "1 links to the glossary stand at no use"),
        ("code", "1 links to the glossary stand at no use"),
    ],
)
def test_the_check_sees_what_is_wrong(change: str, message: str, documents: dict[str, nbformat.NotebookNode]) -> None:
    assert any(message in problem for problem in problems("1", spoil(change, documents["1"])))


def test_each_entry_is_listed_and_used(uses: dict[str, list[Use]]) -> None:
    assert len(ENTRIES) >= 80
    assert [term for term in ENTRIES if term not in uses] == []


def test_the_place_of_the_first_use_is_true(uses: dict[str, list[Use]]) -> None:
    wanted = {term: terms.first_used(uses[term]) for term in ENTRIES if term in uses}
    assert {term: line for term, line in wanted.items() if ENTRIES[term].first_used != line} == {}


@pytest.mark.parametrize("term", ENTRIES)
def test_an_entry_has_japanese_a_reading_and_two_sentences(term: str) -> None:
    entry = ENTRIES[term]
    assert KANA.fullmatch(entry.reading), entry.reading
    prose = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", entry.definition).replace("et al.", "et al")
    assert prose.endswith(".") and len(re.findall(r"[.?!](?=\s|$)", prose)) == 2
    assert "\n" not in prose


def test_a_heading_has_the_same_anchor_everywhere() -> None:
    """GitHub, the site and JupyterLab make anchors in different ways; a name with capitals spells JupyterLab's out."""
    missing = {term for term, entry in ENTRIES.items() if slug(term) not in terms.jupyter_anchors(entry.heading)}
    assert missing == set()
    assert len({slug(term) for term in ENTRIES}) == len(ENTRIES)


def test_entries_are_in_alphabetical_order_under_their_letter() -> None:
    headings = re.findall(r"^##(#?) (.*)", TEXT, re.M)
    letter, listed = "", []
    for deeper, heading in headings:
        if deeper:
            term = re.sub(r"<[^>]*>", "", heading)
            assert term[0].upper() == letter
            listed.append(term)
        else:
            letter = heading
    assert listed == sorted(listed, key=str.lower) == list(ENTRIES)


@pytest.mark.parametrize(("word", "term"), OTHER_WORDS.items())
def test_there_is_one_word_for_one_thing(word: str, term: str, documents: dict[str, nbformat.NotebookNode]) -> None:
    found = [
        f"{notebook}, cell {cell.id}: {match[0]!r}; the term is {term!r}"
        for notebook, document in documents.items()
        for cell in document.cells
        if cell.cell_type == "markdown"
        for match in re.finditer(word, cell.source, re.I)
    ]
    assert found == []


def test_a_form_means_one_term_in_a_notebook() -> None:
    meanings: dict[tuple[str, str], list[str]] = {}
    for term, forms in terms.forms().items():
        for words, scope in forms:
            assert scope <= set(terms.NOTEBOOKS), (term, words)
            for notebook in scope:
                meanings.setdefault((notebook, words), []).append(term)
    assert {form: listed for form, listed in meanings.items() if len(listed) > 1} == {}


def test_the_labels_are_those_of_the_sections(documents: dict[str, nbformat.NotebookNode]) -> None:
    for notebook, document in documents.items():
        headings = [cell.source for cell in document.cells if cell.cell_type == "markdown" and cell.source[:3] == "## "]
        assert headings[0].startswith(f"## {notebook}.1 ")
