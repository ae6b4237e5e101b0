"""What the package needs, checked on import: one sentence instead of a traceback from inside Keras."""

import importlib.metadata
import importlib.util
import os
import re
import sys

#: The lowest version of each that works; a test holds them equal to pyproject.toml.
MINIMUM = {"tensorflow": "2.18", "keras": "3.12"}
#: The same code is published under several names.
DISTRIBUTIONS = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-macos", "tf-nightly"),
    "keras": ("keras", "keras-nightly"),
}


#: The lowest and the highest Python for which TensorFlow is built.
PYTHON = ((3, 11), (3, 13))
#: What to do about anything that is missing.
SETUP = "close this, and open the course with `python3 course.py lab`: it installs what is needed"


class RequirementError(ImportError):
    """TensorFlow or Keras is missing or too old; the message says which, what was found and what to do."""


def check() -> None:
    """Raise `RequirementError` unless TensorFlow and Keras are there and new enough.

    It reads the installed versions without importing either, since that takes seconds. Where `KERAS_BACKEND`
    names another backend TensorFlow may be missing: `course_utils.layers.PACT` does without it.

    Raises:
        RequirementError: One of the two is missing or older than `MINIMUM`.
    """
    for module, minimum in MINIMUM.items():
        if module == "tensorflow" and os.environ.get("KERAS_BACKEND", module) != module:
            continue
        found = installed_version(module)
        if found is None and importlib.util.find_spec(module) is None:
            raise RequirementError(
                f"course_utils needs {module} {minimum} or newer and found none: "
                f"run `pip install '{module}>={minimum}'`, or open the course with `python3 course.py lab`."
            )
        if found is not None and _key(found) < _key(minimum):
            raise RequirementError(
                f"course_utils needs {module} {minimum} or newer and found {found}: "
                f"run `pip install --upgrade '{module}>={minimum}'`."
            )


def check_environment():
    """Look whether this environment can run the course, and say for each thing missing what to do.

    Returns:
        A `Report` with one line for each thing that is needed.

    Example:
        >>> print(check_environment())
        your environment: all 7 checks passed
          ✓ Python 3.11 to 3.13
          ✓ tensorflow
          ✓ keras
          ✓ matplotlib
          ✓ ipywidgets
          ✓ jupyterlab
          ✓ TensorFlow takes a gradient
    """
    from course_utils.report import Report

    report = Report("your environment")
    found = "{}.{}".format(*sys.version_info[:2])
    good = PYTHON[0] <= sys.version_info[:2] <= PYTHON[1]
    report.add(good, "Python 3.11 to 3.13", "" if good else f"this is {found}", cure="" if good else SETUP)
    for module in ("tensorflow", "keras", "matplotlib", "ipywidgets", "jupyterlab"):
        there = importlib.util.find_spec(module) is not None
        report.add(there, module, "" if there else "it is not installed", cure="" if there else SETUP)
    try:
        gradient = _gradient_of_square(3.0)
    except Exception as error:
        report.add(False, "TensorFlow takes a gradient", f"{type(error).__name__}: {error}", cure=SETUP)
    else:
        right = gradient == 6.0
        report.add(right, "TensorFlow takes a gradient", "" if right else f"d(x²)/dx at 3 is {gradient}")
    return report


def _gradient_of_square(x: float) -> float:
    import tensorflow as tf  # takes seconds: only for those who ask

    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = x * x
    return float(tape.gradient(y, x))


def installed_version(module: str) -> str | None:
    """Give the version of `module` that is installed, such as `"2.21.0"`, or None when no distribution is."""
    for name in DISTRIBUTIONS[module]:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _key(version: str) -> tuple[int, int]:
    major, minor = re.findall(r"\d+", version + ".0")[:2]
    return int(major), int(minor)
