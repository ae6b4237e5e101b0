"""A report reads well in a terminal, a notebook and pytest."""

import pytest

from course_utils import Report


@pytest.fixture
def failed():
    report = Report("gradient of half")
    report.add(True, "shapes", "all right " * 10)
    report.add(False, "x (input 0)", "op gives <1>, numerically 2", cure="factor 2 missing", error=1.0)
    report.add(None, "kink", "at 0", error=0.5)
    return report


def test_is_true_when_no_check_failed(failed):
    passed = Report("all well")
    passed.add(True, "shapes")
    passed.add(None, "a note")
    assert passed
    assert passed.ok
    assert not failed
    assert [c.name for c in failed.failures] == ["x (input 0)"]
    assert [c.name for c in failed.notes] == ["kink"]


def test_prints_as_lines(failed):
    assert str(failed).splitlines()[0] == "gradient of half: 1 of 2 checks failed"
    assert "  ✗ x (input 0): op gives <1>, numerically 2 → factor 2 missing" in str(failed).splitlines()
    assert "  – kink: at 0" in str(failed).splitlines()


def test_repr_is_one_line_for_pytest(failed):
    failure = "✗ x (input 0): op gives <1>, numerically 2 → factor 2 missing"
    assert repr(failed) == f"<gradient of half: 1 of 2 checks failed; {failure}>"


def test_largest_error(failed):
    assert failed.max_abs_error == 1.0
    assert Report("empty").max_abs_error == 0.0


def test_html_is_a_table_with_folded_details(failed):
    html = failed._repr_html_()
    assert html.count("<tr>") == 3
    assert "op gives &lt;1&gt;" in html
    assert html.count("<details>") == 1  # of the long line that passed; a failure is never folded away
    assert "<strong>factor 2 missing</strong>" in html


def test_raise_if_failed_holds_the_whole_report(failed):
    with pytest.raises(AssertionError) as raised:
        failed.raise_if_failed()
    assert str(raised.value) == str(failed)
    Report("empty").raise_if_failed()


def test_assert_shows_the_failure(pytester, failed):
    pytester.makepyfile("""
        from course_utils import Report
        def test():
            report = Report("gradient of half")
            report.add(False, "x (input 0)", "op gives 1, numerically 2")
            assert report
    """)
    result = pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:nbval")
    result.stdout.fnmatch_lines(
        ["*assert <gradient of half: 1 of 1 checks failed; ✗ x (input 0): op gives 1*"]
    )
