"""The README's example prints what the README says."""

import pathlib
import re

import pytest

README = (pathlib.Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
EXAMPLE = next(text for kind, text in BLOCKS if kind == "python" and "class Scale" in text)
BROKEN, MENDED = (text for kind, text in BLOCKS if kind == "" and text.startswith("layer scale"))


@pytest.mark.parametrize(
    ("code", "printed"),
    [
        (EXAMPLE, BROKEN),
        (
            EXAMPLE.replace(
                "return dy * factor, dy * x", "return dy * factor, tf.reduce_sum(dy * x, axis=0)"
            ),
            MENDED,
        ),
    ],
    ids=["broken", "mended"],
)
def test_check_your_own_layer(code, printed, capsys):
    exec(code.replace("Scale()", "Scale(name='scale')"), {})
    lines = capsys.readouterr().out.splitlines()
    promised = [line for line in printed.splitlines() if line.strip() != "..."]
    assert lines[0] == promised[0]
    assert [line for line in promised if line not in lines] == []


def test_cure_of_the_readme_is_the_one_that_is_tested():
    assert "`return dy * factor, tf.reduce_sum(dy * x, axis=0)`" in README
