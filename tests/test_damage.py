"""A solution with one thing wrong is refused, and what the learner is shown is about the learner's code."""

import ast
import dataclasses
import inspect
import linecache
import random
import signal
import textwrap
from _thread import interrupt_main

import numpy as np
import pytest
import tensorflow as tf

from course_utils.exercises.exercise import _LOOK_ANYWHERE, _LOOK_AT
from tests.damage import ENDLESS, Damage, damages
from tests.test_exercises import EXERCISES

SAMPLE = 2  # of the damages of each exercise, in the test line
#: One exercise for each way in which a judge calls an answer: an op, Keras's methods, a factory and a rule
#: with variables, a file, plain Python, a second derivative, keras.ops, check_gradient, check_layer.
JUDGES = (
    "01.cube",
    "01.scaled_square_layer",
    "06.slow_bias",
    "07.scaled_gradient",
    "08.numerical_vjp",
    "10.log_cosh",
    "12.portable_sign",
    "13.smooth_abs",
    "13.affine",
)

MATRIX = "axis 1 is the last one of a matrix"
SQUARED = "a squared difference"
#: Damages after which the answer does the same as before, by exercise, each with the reason.
HARMLESS = {
    "01.scaled_square_layer": {"flips a sign: -1 -> 1": MATRIX},
    "01.mend_leaky": {"drops an operand: 0.1 * tf.ones_like(x) -> 0.1": "tf.where broadcasts a number"},
    "02.train_step": {
        "swaps operands: model(x, training=True) - y -> y - model(x, training=True)": SQUARED,
    },
    "08.numerical_vjp": {"uses NumPy: return gradient -> return np.asarray(gradient)": "it is an array"},
    "08.linear_in_dy": {
        "swaps arguments: np.allclose(-100.0 * results[0], results[1], rtol=0.0001, atol=0.0001)"
        " -> np.allclose(results[1], -100.0 * results[0], rtol=0.0001, atol=0.0001)": "symmetric enough",
        "uses NumPy: return np.allclose(-100.0 * results[0], results[1], rtol=0.0001, atol=0.0001)"
        " -> return np.asarray(np.allclose(-100.0 * results[0], results[1], rtol=0.0001, atol=0.0001))": (
            "an array of no dimension is one truth value"
        ),
        "drops an operand: factor * dy -> factor": "a dy of ones shows what a factor of -100 does, too",
    },
    "09.draw_category": {
        "swaps parameters: def draw_category(logits, noise, temperature):; z = logits + noise"
        " -> def draw_category(noise, logits, temperature):; z = logits + noise": "a sum",
        "flips a sign: -1 -> 1": MATRIX,
    },
    "09.mend_quantizer": {
        "flips a sign: -1 -> 1": "axis 1 is the last one of the squared distances",
        "swaps operands: z[:, None] - codebook -> codebook - z[:, None]": SQUARED,
        "swaps operands: tf.stop_gradient(z) - code -> code - tf.stop_gradient(z)": SQUARED,
        "swaps operands: z - tf.stop_gradient(code) -> tf.stop_gradient(code) - z": SQUARED,
    },
    "12.portable_scale": {
        "flips a sign: -1 -> 1": MATRIX,
        "swaps arguments: keras.ops.maximum(norm, 1.0) -> keras.ops.maximum(1.0, norm)": "symmetric",
    },
    "13.distance": {
        "flips a sign: -1 -> 1": MATRIX,
        "swaps operands: a - b -> b - a": SQUARED,
        "swaps parameters: def distance(a, b):; squares = tf.reduce_sum((a - b) ** 2, axis=-1)"
        " -> def distance(b, a):; squares = tf.reduce_sum((a - b) ** 2, axis=-1)": SQUARED,
    },
    "13.vq_loss": {
        "flips a sign: -1 -> 1": "axis 1 is the last one of the squared distances",
        "swaps operands: z[:, None] - codebook -> codebook - z[:, None]": SQUARED,
        "swaps operands: code - target -> target - code": SQUARED,
        "swaps operands: tf.stop_gradient(z) - nearest -> nearest - tf.stop_gradient(z)": SQUARED,
        "swaps operands: z - tf.stop_gradient(nearest) -> tf.stop_gradient(nearest) - z": SQUARED,
    },
    "13.affine": {"flips a sign: -1 -> 1": "shape[1:] is shape[-1:] where there are two axes"},
}


def finite_damages(name: str) -> list[Damage]:
    """Give the damages of a solution that come to an end."""
    return [d for d in damages(EXERCISES[name].solution_source()) if d.kind != ENDLESS]


def define(name: str, damage: Damage):
    """Run a damaged solution as a cell of a notebook runs; give the answer that it defines."""
    solution = EXERCISES[name]._solution
    *_, last = ast.parse(textwrap.dedent(inspect.getsource(solution))).body[0].body
    cell = f"<{name}>"
    linecache.cache[cell] = (len(damage.source), None, damage.source.splitlines(keepends=True), cell)
    names = {**solution.__globals__, "np": np, "tf": tf, "interrupt_main": interrupt_main}
    exec(compile(damage.source, cell, "exec"), names)
    return names[last.value.id]


def problem(name: str, damage: Damage) -> str | None:
    """Say what is wrong with the verdict on a damaged solution, None when nothing is."""
    try:
        answer = define(name, damage)
    except Exception:
        return None  # the learner sees it under the cell itself, before any check
    outcome = EXERCISES[name].check(answer)  # whatever this raises is a traceback of the package
    if outcome.kind == "correct":
        return None if damage.name in HARMLESS.get(name, ()) else "correct"
    if outcome.kind == "error":
        place = outcome.lines[1]
        told = place in (*_LOOK_AT.values(), _LOOK_ANYWHERE) or place.startswith("What to do: ")
        return None if told or place.split(": ", 1)[-1] in damage.source else str(outcome)
    return None if outcome.kind == "wrong" else str(outcome)


def problems(name: str, chosen: list[Damage]) -> dict[str, str]:
    found = {damage.name: problem(name, damage) for damage in chosen}
    return {damage: text for damage, text in found.items() if text}


@pytest.mark.parametrize("name", EXERCISES)
def test_some_damaged_solutions_are_refused(name):
    chosen = random.Random(name).sample(finite_damages(name), SAMPLE)
    assert problems(name, chosen) == {}


@pytest.mark.full
@pytest.mark.parametrize("name", EXERCISES)
def test_every_damaged_solution_is_refused(name):
    assert problems(name, finite_damages(name)) == {}


def test_what_is_called_harmless_is_a_damage():
    for name, changes in HARMLESS.items():
        assert set(changes) <= {damage.name for damage in finite_damages(name)}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in JUDGES else pytest.mark.full) for n in EXERCISES]
)
def test_an_endless_loop_can_be_interrupted_and_the_next_answer_is_judged(name):
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a kernel that runs a cell
    try:
        for damage in damages(EXERCISES[name].solution_source()):
            if damage.kind == ENDLESS:
                # Every turn of the loop does what the button with the square does.
                source = damage.source.replace("while True", "while not interrupt_main()")
                answer = define(name, dataclasses.replace(damage, source=source))
                with pytest.raises(KeyboardInterrupt):
                    EXERCISES[name].check(answer)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert EXERCISES[name].check(EXERCISES[name].solve())
