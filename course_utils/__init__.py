"""Ops, layers, checks and sliders of the course "Custom Gradients in Keras".

The four names that people use in their own projects:

- `check_gradient(op, *inputs)`: does the backward pass of an op tell the truth?
- `check_layer(layer, inputs)`: what can silently go wrong between a layer's `call` and `fit`?
- `plot_gradient(op, x)`: forward curve and backward curve, side by side.
- `explore(f, **sliders)`: a figure with sliders.

They load when they are first used: importing the package imports neither TensorFlow, which takes
seconds, nor matplotlib and ipywidgets, which a script or a test may never need.
"""

import importlib
from typing import TYPE_CHECKING

from course_utils import _requirements

if TYPE_CHECKING:
    from course_utils._requirements import check_environment
    from course_utils.curves import Curve
    from course_utils.doctor import check_layer
    from course_utils.explorers import Slider, explore, explore_op
    from course_utils.gradients import check_gradient
    from course_utils.plotting import plot_gradient
    from course_utils.report import Report

__all__ = [
    "Curve",
    "Report",
    "Slider",
    "check_environment",
    "check_gradient",
    "check_layer",
    "explore",
    "explore_op",
    "plot_gradient",
]

_HOMES = {
    "check_environment": "_requirements",
    "Report": "report",
    "check_gradient": "gradients",
    "check_layer": "doctor",
    "Curve": "curves",
    "Slider": "explorers",
    "explore": "explorers",
    "explore_op": "explorers",
    "plot_gradient": "plotting",
}

_requirements.check()


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(importlib.import_module(f"course_utils.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
