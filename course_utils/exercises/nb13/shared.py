"""What the judges of the clinic share: errors that name a mistake, reports that settle a case, layers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import keras

from course_utils.errors import first_sentence, hidden_log
from course_utils.exercises import judging
from course_utils.exercises.exercise import WrongAnswer
from course_utils.report import Report

#: Checks of `check_layer` that take long and look at none of the clinic's faults.
SLOW = ("xla", "mixed_float16", "mixed_bfloat16", "saved", "trains", "forward_mode", "vectorized_map")


@contextlib.contextmanager
def named_errors(where: str, causes: Mapping[str, str]) -> Iterator[None]:
    """Turn an error whose message holds a key of `causes` into a wrong answer with that likely cause.

    Any other error goes on as it is: it is the learner's, and the exercise shows its line.

    Raises:
        WrongAnswer: The block raised an error whose message holds a key of `causes`.
    """
    try:
        with hidden_log():  # TensorFlow logs every op that fails, with time and path
            yield
    except WrongAnswer:
        raise
    except Exception as error:
        cause = next((cause for words, cause in causes.items() if words in str(error)), None)
        if cause is None:
            raise
        raise WrongAnswer(where, "a result", first_sentence(error, 110), cause) from None


def settle(report: Report) -> None:
    """Refuse an answer that a check of the package refuses, with the first thing that it found."""
    if not report:
        first = report.failures[0]
        raise WrongAnswer(first.name, "the check passes", first.detail, first.cure)


def need_layer(answer, name: str) -> None:
    """Refuse an answer that is no layer class."""
    if not (isinstance(answer, type) and issubclass(answer, keras.layers.Layer)):
        expected = f"a class derived from keras.layers.Layer ({name})"
        raise WrongAnswer("your answer", expected, f"{answer!r:.60}", "give the class, not a layer")


def reload(layer: keras.layers.Layer, features: int, causes: Mapping[str, str]) -> keras.layers.Layer:
    """Give a layer that was saved and loaded; a failure whose text holds a key of `causes` has that cause."""
    with named_errors("a model with it, saved and loaded", causes):
        return judging.reload(layer, features)
