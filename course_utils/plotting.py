"""Forward and backward curves, drawn from the live op; and the one place for colors and figure sizes."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure

#: Colors that people tell apart who see no red or no green (Okabe and Ito 2008), with a dash pattern each,
#: so that color is never the only difference between two curves.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "linestyle": "-"},
    {"color": "#D55E00", "linestyle": "--"},
    {"color": "#009E73", "linestyle": "-."},
    {"color": "#CC79A7", "linestyle": ":"},
    {"color": "#000000", "linestyle": (0, (1, 3))},
    {"color": "#E69F00", "linestyle": (0, (6, 2, 1, 2, 1, 2))},
)
MARKERS = ("o", "^", "s", "x", "D", "+")
#: Width and height of one panel, in inches.
PANEL = (4.2, 3.0)


def plot_gradient(
    op: Callable | Mapping[str, Callable],
    x=(-3.0, 3.0),
    *,
    title: str | None = None,
    xlabel: str = "input x",
    points: int = 401,
) -> Figure:
    """Draw what an elementwise op does forward (left) and what its backward pass gives for `dy = 1` (right).

    Args:
        op: A function of one tensor that gives a tensor of the same shape, or a dict `{label: function}`
            of several, drawn into the same two panels.
        x: The two ends of the range to draw, or a 1-D array of points in ascending order.
        title: Title of the figure; by default the name of the op.
        xlabel: Label of the horizontal axes, with its unit if there is one.
        points: How many points to draw between two ends.

    Returns:
        A matplotlib Figure with two axes. It is not shown: put it at the end of a notebook cell.

    Raises:
        TypeError: `op` is neither a function nor a dict of functions, or gives no tensor of real numbers.
        ValueError: `x` is no ascending range of finite numbers, `points` is below 2, the op changes the
            shape, or there are more ops than line styles.

    Example:
        >>> figure = plot_gradient({"square": tf.square, "sine": tf.sin}, (-1, 1))
        >>> [axes.get_title() for axes in figure.axes]
        ['forward', 'backward, upstream gradient 1']
    """
    ops = _named(op)
    grid = as_grid(x, points)
    panels: dict[str, dict] = {"forward": {}, "backward, upstream gradient 1": {}}
    for label, function in ops.items():
        for panel, values in zip(panels.values(), gradient_curves(function, grid), strict=True):
            panel[label] = (grid, values)
    figure, axes = new_figure(list(panels), title or ", ".join(ops), xlabel, ("output y", "gradient dy/dx"))
    for ax, curves in zip(axes, panels.values(), strict=True):
        for style, (label, (xs, ys)) in zip(STYLES, curves.items(), strict=False):
            lost = "" if np.isfinite(ys).any() else " (no gradient: None)"
            ax.plot(xs, ys, label=label + lost, **style)
        ax.legend()
    return figure


def gradient_curves(op: Callable, x) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate an elementwise op and its backward pass for an upstream gradient of ones.

    Args:
        op: A function of one tensor that gives a tensor of the same shape.
        x: Array of shape `(n,)`; it is passed to the op as float32.

    Returns:
        The outputs and the gradients, each a float64 array of shape `(n,)`. Where the tape has no gradient
        (None) all gradients are NaN.

    Raises:
        TypeError: The op is not callable, or gives no tensor of real numbers.
        ValueError: The op gives another shape.

    Example:
        >>> [curve.tolist() for curve in gradient_curves(tf.square, np.array([1.0, 2.0]))]
        [[1.0, 4.0], [2.0, 4.0]]
    """
    if not callable(op):
        raise TypeError(f"op is {op!r}: give a function of one tensor")
    x = tf.constant(x, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch(x)
        try:
            y = op(x)
        except Exception as error:
            error.add_note(f"op raises this for one float32 tensor of shape {tuple(x.shape)}")
            raise
    kind = y.dtype if isinstance(y, tf.Tensor) else None
    if kind is None or not (kind.is_floating or kind.is_integer or kind.is_bool):
        given = kind.name if kind else type(y).__name__
        raise TypeError(f"op gives {given}: it must return one tensor of real numbers, of the input's shape")
    if tuple(y.shape) != tuple(x.shape):
        raise ValueError(
            f"op gives shape {tuple(y.shape)} for shape {tuple(x.shape)}: draw elementwise ops only"
        )
    gradient = tape.gradient(y, x)
    backward = np.full(x.shape, np.nan) if gradient is None else np.asarray(gradient, np.float64)
    return np.asarray(y, np.float64), backward


def as_grid(x, points: int = 401) -> np.ndarray:
    """Turn two ends into `points` numbers between them; leave a longer 1-D array as it is.

    Raises:
        ValueError: `x` is no ascending range of finite numbers, or `points` is below 2.

    Example:
        >>> as_grid((0, 1), points=3).tolist()
        [0.0, 0.5, 1.0]
    """
    if not isinstance(points, numbers.Integral) or points < 2:
        raise ValueError(f"points is {points}: give 2 or more")
    try:
        grid = np.asarray(x, np.float64)
    except (TypeError, ValueError):
        grid = np.empty(0)
    finite = np.abs(grid) <= np.finfo(np.float32).max  # ops get float32
    if grid.ndim != 1 or grid.size < 2 or not finite.all() or not (np.diff(grid) > 0).all():
        raise ValueError(f"x is {x!r}: give two finite numbers, the lower first, or an ascending 1-D array")
    return np.linspace(grid[0], grid[1], points) if grid.size == 2 else grid


def new_figure(panels: list[str], title: str, xlabel: str, ylabels: tuple[str, ...]) -> tuple[Figure, list]:
    """Make an empty figure with a titled panel for each name, side by side.

    It belongs to no pyplot state: a notebook shows it where it is the last line of a cell, and nowhere else.

    Args:
        panels: The title of each panel.
        title: Title of the figure.
        xlabel: Label of every horizontal axis.
        ylabels: Label of each vertical axis, as many as panels.

    Returns:
        The figure and its axes.

    Example:
        >>> figure, axes = new_figure(["left", "right"], "two", "x", ("y", "z"))
        >>> len(axes), axes[1].get_ylabel()
        (2, 'z')
    """
    width, height = PANEL
    figure = plt.figure(figsize=(width * len(panels), height), layout="constrained")
    plt.close(figure)
    axes = list(figure.subplots(1, len(panels), squeeze=False)[0])
    figure.suptitle(title)
    for ax, name, ylabel in zip(axes, panels, ylabels, strict=True):
        ax.set(title=name, xlabel=xlabel, ylabel=ylabel)
        ax.grid(alpha=0.3)
    return figure, axes


def _named(op) -> dict[str, Callable]:
    ops = (
        {str(label): f for label, f in op.items()}
        if isinstance(op, Mapping)
        else {getattr(op, "__name__", type(op).__name__): op}
    )
    wrong = [label for label, function in ops.items() if not callable(function)]
    if wrong or not ops:
        raise TypeError(f"op is {op!r}: give a function of one tensor, or a dict of such functions")
    if len(ops) > len(STYLES):
        raise ValueError(
            f"op holds {len(ops)} functions: give at most {len(STYLES)}, one for each line style"
        )
    return ops
