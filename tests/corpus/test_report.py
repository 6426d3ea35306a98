"""Counts that add up, however a run was cut into parts."""

from course_lib.corpus.report import CorpusReport


def filled(first: int, last: int) -> CorpusReport:
    """Documents first…last-1 of the same run: every third is short, every document loses a line."""
    report = CorpusReport(examples=2)
    for number in range(first, last):
        text = f"文書{number}\n本文"
        report.enter(text + "重複")
        report.remove_line("duplicate_line", str(number), "重複")
        if number % 3:
            report.keep(text)
        else:
            report.remove("too_short", str(number), text, "note")
        report.count("cut")
    return report


def test_parts_in_order_give_the_whole() -> None:
    whole = filled(10, 30)
    merged = CorpusReport(examples=2)
    for part in (filled(10, 11), filled(11, 24), filled(24, 30)):
        merged.merge(part)
    assert merged == whole
    assert [example["id"] for example in whole.removed["too_short"].examples] == ["12", "15"]
    taken = sum(removed.characters for group in (whole.removed, whole.lines) for removed in group.values())
    assert whole.characters_in == whole.characters_out + taken == 20 * 8
    assert whole.documents_in == whole.documents_out + whole.removed["too_short"].count


def test_summary_is_one_line_and_says_when_nothing_is_left() -> None:
    report = CorpusReport("webtext", "a.txt")
    assert "no document in the input" in report.summary()
    report.merge(filled(0, 6))
    assert "kept 4 of 6 documents" in report.summary() and "too_short 2" in report.summary()
    assert "\n" not in report.summary()
