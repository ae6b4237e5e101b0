"""The curves come from the live op, and the figure says what it shows."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import tensorflow as tf

from course_utils import ops, plot_gradient
from course_utils.plotting import as_grid, gradient_curves


def lines(figure, axis):
    return {line.get_label(): np.asarray(line.get_ydata()) for line in figure.axes[axis].lines}


def test_draws_forward_and_backward_of_each_op():
    figure = plot_gradient({"square": tf.square, "clipped": ops.square_with_clipped_grad}, (-2, 2), points=5)
    x = np.linspace(-2, 2, 5)
    np.testing.assert_allclose(lines(figure, 0)["square"], x**2)
    np.testing.assert_allclose(lines(figure, 0)["clipped"], x**2)
    np.testing.assert_allclose(lines(figure, 1)["square"], 2 * x)
    np.testing.assert_allclose(lines(figure, 1)["clipped"], np.clip(2 * x, -1, 1))


def test_has_a_title_and_labelled_axes():
    figure = plot_gradient(tf.sin, title="a sine", xlabel="angle [rad]")
    assert figure.get_suptitle() == "a sine"
    assert [(ax.get_xlabel(), ax.get_ylabel()) for ax in figure.axes] == [
        ("angle [rad]", "output y"),
        ("angle [rad]", "gradient dy/dx"),
    ]


def test_curves_differ_in_more_than_color():
    figure = plot_gradient({str(i): tf.sin for i in range(6)})
    assert len({str(line._dash_pattern) for line in figure.axes[0].lines}) == 6
    assert len({line.get_color() for line in figure.axes[0].lines}) == 6


def test_says_where_there_is_no_gradient():
    figure = plot_gradient({"round": tf.round})
    assert list(lines(figure, 1)) == ["round (no gradient: None)"]
    assert np.isnan(lines(figure, 1)["round (no gradient: None)"]).all()


def test_belongs_to_no_pyplot_state():
    before = plt.get_fignums()
    plot_gradient(tf.sin)
    assert plt.get_fignums() == before


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"op": 3}, TypeError, "op is 3: give a function"),
        ({"op": {}}, TypeError, "give a function of one tensor, or a dict"),
        ({"op": {"a": tf.sin, "b": 1}}, TypeError, "op is"),
        ({"op": tf.sin, "x": (1, -1)}, ValueError, "the lower first"),
        ({"op": tf.sin, "x": (0, float("inf"))}, ValueError, "finite"),
        ({"op": tf.sin, "x": [[0, 1]]}, ValueError, "1-D"),
        ({"op": tf.sin, "points": 1}, ValueError, "points is 1: give 2 or more"),
        ({"op": tf.reduce_sum}, ValueError, r"op gives shape \(\) for shape \(401,\)"),
    ],
)
def test_bad_input(arguments, error, words):
    with pytest.raises(error, match=words):
        plot_gradient(**arguments)


def test_grid_leaves_an_ascending_array_alone():
    assert as_grid([0, 1, 5]).tolist() == [0, 1, 5]


def test_curves_are_those_of_the_op():
    y, slope = gradient_curves(tf.exp, [0.0, 1.0])
    np.testing.assert_allclose(y, np.exp([0, 1]), rtol=1e-6)
    np.testing.assert_allclose(slope, np.exp([0, 1]), rtol=1e-6)
