"""The texts on which tokenizers are measured."""

from course_lib.corpus import products
from course_lib.documents import read_texts
from course_lib.subword.unseen import unseen_texts


def test_the_unseen_texts_are_in_no_corpus() -> None:
    corpora = [product.path() / products.DOCUMENTS for product in (products.WIKIPEDIA, products.WEBTEXT)]
    known = "\n".join(text for path in corpora for text in read_texts(path))
    # No text shares a run of 40 characters with the corpus.
    assert not [
        text for text in unseen_texts() if any(text[at : at + 40] in known for at in range(0, len(text) - 40, 20))
    ]
