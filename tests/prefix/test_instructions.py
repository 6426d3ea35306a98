"""The questions of 6.12: parts of the right sizes that share nothing, and stored results that belong to them."""

from collections import Counter

from course_lib.notebooks import measured
from course_lib.prefix import instructions
from course_lib.prefix.instructions import KINDS


def test_parts_have_all_kinds_and_share_nothing() -> None:
    train, choose, judge = parts = instructions.parts()
    assert [len(part) for part in parts] == [300, 50, 100]
    assert all(Counter(pair.kind for pair in part) == dict.fromkeys(KINDS, len(part) // 5) for part in parts)
    prompts = [pair.prompt for part in parts for pair in part]
    assert len({*prompts}) == len(prompts)
    learned = {pair.prompt for pair in train}
    for pair in (*choose, *judge):
        # The other question on the same sum or the same pair of opposites is in the same part.
        if pair.kind == "opposite":
            assert (
                instructions.TEMPLATE.format(f"{pair.target.removesuffix('です。')}の反対は何ですか。") not in learned
            )
        if pair.kind == "sum":
            first, second = pair.prompt.removeprefix("質問：").partition("は")[0].split("足す")
            assert instructions.TEMPLATE.format(f"{second}足す{first}はいくつですか。") not in learned
        if pair.kind == "reading":
            assert pair.target.removesuffix("です。") in pair.prompt


def test_the_examples_are_one_of_each_kind_and_end_with_their_lines() -> None:
    assert instructions.examples().count("答え：") == 5 and instructions.examples().endswith("。\n")


def test_results_are_of_these_pairs_and_rates_were_chosen_elsewhere() -> None:
    rows = measured.rows("prefix/instructions")
    for row in rows:
        most = 10 if row["part"] == "choose" else 20
        assert all(0 <= row[kind] <= most for kind in KINDS)
    for way in ("prefix", "all weights"):
        tried = {row["rate"]: sum(row[kind] for kind in KINDS) for row in rows
                 if row["part"] == "choose" and row["way"] == way}  # fmt: skip
        judged = {row["rate"] for row in rows if row["part"] == "judge" and row["way"] == way}
        assert len(tried) > 1 and {tried[rate] for rate in judged} == {max(tried.values())}
