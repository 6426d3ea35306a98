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


def test_table_shows_every_limit_and_aligns() -> None:
    report = CorpusReport("webtext", "a.txt", limits={"too_short": "< 80", "links": "> 0.15"})
    report.merge(filled(0, 6))
    rows = {
        line.split()[1] if line.startswith("-") else line.split()[0]: line.split()
        for line in report.table().splitlines()
    }
    assert rows["too_short"][2:5] == ["<", "80", "2"]
    assert rows["links"][4] == "0"
    assert rows["out"][:2] == ["out", "4"]
    assert rows["lines:"][1:3] == ["duplicate_line", "6"]
    assert len({line.index("documents") for line in report.table().splitlines() if "documents" in line}) == 1


def test_summary_is_one_line_and_says_when_nothing_is_left() -> None:
    report = CorpusReport("webtext", "a.txt")
    assert "no document in the input" in report.summary()
    report.merge(filled(0, 6))
    assert report.summary().startswith("webtext a.txt: kept 4 of 6 documents (66.7 %)")
    assert "too_short 2" in report.summary() and "\n" not in report.summary()
    nothing = CorpusReport()
    nothing.enter("短い")
    nothing.remove("too_short", "1", "短い")
    assert "no document left" in nothing.summary() and "too_short 1" in nothing.summary()
