"""README's table of scores is the recorded one, and what README says about it is true."""

import json

from tests.bench.bench_evaluate import NAMES, README, SCORES, in_readme, table


def test_the_table_in_the_readme_is_the_recorded_one() -> None:
    scores = json.loads(SCORES.read_text(encoding="utf8"))
    text = README.read_text(encoding="utf8")
    assert in_readme(text, table(scores)) == text
    assert [row["model"] for row in scores["models"]] == list(NAMES)
    assert f"{scores['documents']:,} characters" in text and f"{scores['pairs']} minimal pairs" in text
