"""What a notebook builds by hand the first time agrees with the finished form in the package."""

import pathlib

import keras
import nbformat
import numpy as np
import pytest
import tensorflow as tf

from course_utils import layers, ops
from course_utils.gradients import vjp

NOTEBOOKS = pathlib.Path(__file__).parents[1] / "notebooks"


def cell(notebook: str, text: str) -> str:
    """Give the source of the one code cell of a notebook that holds a text."""
    (source,) = [
        c.source
        for c in nbformat.read(NOTEBOOKS / notebook, as_version=4).cells
        if c.cell_type == "code" and text in c.source
    ]
    return source


def output_and_gradient(f, x):
    """Give both for a random upstream gradient."""
    y = f(x)
    dy = tf.constant(np.random.default_rng(5).standard_normal(y.shape), y.dtype)
    return y.numpy(), vjp(f, [x], dy)[0].numpy()


@pytest.fixture
def built():
    """Run the two cells of notebook 01 that build the op and the layer."""
    names = {"tf": tf, "keras": keras, "slope": lambda *_: None}
    for text in ("def square_with_clipped_grad", "class CustomSquareLayer"):
        exec(cell("01_layer_and_op.ipynb", text), names)
    return names


@pytest.mark.parametrize(
    ("name", "finished"),
    [
        ("square_with_clipped_grad", ops.square_with_clipped_grad),
        ("CustomSquareLayer", layers.CustomSquareLayer()),
    ],
)
def test_notebook_01(built, name, finished):
    by_hand = built[name]() if isinstance(built[name], type) else built[name]
    x = np.random.default_rng(4).standard_normal((8, 3)).astype("float32")
    for ours, theirs in zip(output_and_gradient(by_hand, x), output_and_gradient(finished, x), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("text", "name", "finished"),
    [
        ("class ClippedSquare", "ClippedSquare", layers.CustomSquareLayer()),
        ("def square(x)", "square", layers.clipped_square),
    ],
)
def test_notebook_07(text, name, finished):
    names = {"tf": tf, "keras": keras, "ops": ops}
    source = cell("07_serialization.ipynb", text).split("\n\n\ndense =")[0]  # of the op's cell the op alone
    exec(source, names)
    by_hand = names[name]() if isinstance(names[name], type) else names[name]
    x = np.random.default_rng(4).standard_normal((8, 3)).astype("float32")
    for ours, theirs in zip(output_and_gradient(by_hand, x), output_and_gradient(finished, x), strict=True):
        np.testing.assert_array_equal(ours, theirs)
