"""What the package needs, checked on import: one sentence instead of a traceback from inside Keras."""

import importlib.metadata
import importlib.util
import re

#: The lowest version of each that works; a test holds them equal to pyproject.toml.
MINIMUM = {"tensorflow": "2.18", "keras": "3.8"}
#: The same code is published under several names.
DISTRIBUTIONS = {
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-intel", "tensorflow-macos", "tf-nightly"),
    "keras": ("keras", "keras-nightly"),
}


class RequirementError(ImportError):
    """TensorFlow or Keras is missing or too old; the message says which, what was found and what to do."""


def check() -> None:
    """Raise `RequirementError` unless TensorFlow and Keras are there and new enough.

    It reads the installed versions without importing either, since that takes seconds.

    Raises:
        RequirementError: One of the two is missing or older than `MINIMUM`.
    """
    for module, minimum in MINIMUM.items():
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
