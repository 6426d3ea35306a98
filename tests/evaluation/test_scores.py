"""README's table of scores is the recorded one, and what README says about it is true."""

import json

from tests.bench.bench_evaluate import FAR, NAMES, NEAR, README, SCORES, in_readme, table


def test_the_table_in_the_readme_is_the_recorded_one() -> None:
    scores = json.loads(SCORES.read_text(encoding="utf8"))
    text = README.read_text(encoding="utf8")
    assert in_readme(text, table(scores)) == text
    assert [row["model"] for row in scores["models"]] == list(NAMES)
    assert f"{scores['documents']} held-out documents" in text and f"{scores['samples']} texts" in text
    source, gpt2 = scores["models"][:2]
    assert f"GPT-2 is {gpt2['bits per character'] - source['bits per character']:.3f} bits above" in text
    assert f"and {100 * gpt2['sentences of the world']:.0f} % of its sentences" in text and gpt2["copied"] == 0
    assert f"only {100 * gpt2['without contradiction']:.0f} % of its texts" in text
    right = scores["grammar"]["gpt2"]
    share = f"{100 * right['accuracy']:.0f} %"
    assert f"Of {right['pairs']} grammatical pairs of real Japanese it judges {share} rightly" in text
    judged = [one["minimal pairs"][distance] for one in scores["models"][1:] for distance in (NEAR, FAR)]
    assert {each["pairs"] for each in judged} == {120}
