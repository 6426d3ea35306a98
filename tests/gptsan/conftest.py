import pytest
from course_lib.gptsan.swe import SPECIALS
from course_lib.gptsan.tokenizer import GPTSanTokenizer, load_tokenizer

from tests.gptsan import handmade
from tests.gptsan.test_generate import LETTERS


@pytest.fixture(scope="session")
def words(tmp_path_factory: pytest.TempPathFactory) -> GPTSanTokenizer:
    """The tokenizer of test_generate.py's letters."""
    return load_tokenizer(handmade.write(tmp_path_factory.mktemp("words") / "tokenizer", [*LETTERS, *SPECIALS]))
