"""Every exercise tells the four outcomes apart, and refuses named mistakes with the hint meant for them."""

import importlib
import pathlib

import keras
import nbformat
import numpy as np
import pytest
import tensorflow as tf

from course_utils.exercises import judging
from course_utils.exercises.exercise import Exercise, WrongAnswer, _learners_line
from tests.test_notebooks_solved import stub_name

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[1] / "notebooks").glob("[0-9]*.ipynb"))


def load(package: str) -> dict:
    """Give the module of each notebook in a package, by its number."""
    return {p.stem[:2]: importlib.import_module(f"{package}.nb{p.stem[:2]}") for p in NOTEBOOKS}


MODULES = load("course_utils.exercises")
MISTAKES = load("tests.wrong_answers")
EXERCISES = {
    f"{number}.{name}": exercise
    for number, module in MODULES.items()
    for name, exercise in vars(module).items()
    if isinstance(exercise, Exercise)
}
WRONG = [
    pytest.param(EXERCISES[f"{number}.{exercise}"], answer, words, id=f"{number}.{exercise}: {name}")
    for number, module in MISTAKES.items()
    for exercise, answers in module.WRONG.items()
    for name, (answer, words) in answers.items()
]


@pytest.mark.parametrize("exercise", EXERCISES.values(), ids=EXERCISES)
class TestEveryExercise:
    def test_solution_is_correct_and_says_what_it_shows(self, exercise):
        outcome = exercise.check(exercise.solve())
        assert (outcome.kind, len(outcome.lines)) == ("correct", 1), str(outcome)
        assert outcome.lines[0].endswith(".")

    @pytest.mark.parametrize("answer", [None, ...])
    def test_untouched_answer_is_not_attempted(self, exercise, answer):
        assert exercise.check(answer).kind == "not attempted"
        assert exercise.check().kind == "not attempted"

    def test_solution_shown_is_code_that_defines_the_answer(self, exercise):
        compile(exercise.solution_source(), "solution", "exec")
        assert str(exercise.solution()) == exercise.solution_source()
        assert (
            "return" not in exercise.solution_source().splitlines()[-1]
            or "    " in exercise.solution_source()
        )

    def test_hints_come_one_by_one_and_start_again(self, exercise):
        told = [exercise.hint() for _ in range(len(exercise.hints) + 1)]
        assert len(exercise.hints) >= 2
        assert [t.split(": ")[0] for t in told[:-1]] == [
            f"Hint {i} of {len(exercise.hints)}" for i in range(1, len(exercise.hints) + 1)
        ]
        assert told[-1] == told[0]

    def test_states_time_and_difficulty(self, exercise):
        assert exercise.minutes >= 1
        assert exercise.difficulty in (1, 2, 3)


@pytest.mark.parametrize(("exercise", "answer", "words"), WRONG)
def test_mistake_is_refused_with_its_own_hint(exercise, answer, words):
    outcome = exercise.check(answer)
    assert outcome.kind == "wrong", str(outcome)
    assert words in str(outcome)


@pytest.mark.parametrize("name", EXERCISES)
def test_has_at_least_three_named_mistakes(name):
    number, exercise = name.split(".")
    assert len(MISTAKES[number].WRONG[exercise]) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
class TestStubs:
    def test_notebook_has_a_stub_for_each_exercise_and_no_other(self, path):
        names = [stub_name(c) for c in nbformat.read(path, as_version=4).cells if stub_name(c)]
        assert sorted(names) == sorted(n[3:] for n in EXERCISES if n.startswith(path.stem[:2]))

    def test_stub_is_not_correct(self, path):
        cells = nbformat.read(path, as_version=4).cells
        checks = [o for c in cells for o in c.get("outputs", []) if ".check(" in c.source]
        assert checks
        assert not any("✓ correct" in o.get("data", {}).get("text/plain", "") for o in checks)

    def test_text_states_the_time_and_difficulty_of_the_exercise(self, path):
        text = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells)
        for name, exercise in EXERCISES.items():
            if name.startswith(path.stem[:2]):
                unit = "minute" if exercise.minutes == 1 else "minutes"
                assert f"({exercise.minutes} {unit}, difficulty {exercise.difficulty} of 3)" in text


def judge_square(op):
    if float(op(tf.constant(3.0))) != 9.0:
        raise WrongAnswer("op(3)", 9.0, float(op(tf.constant(3.0))), "is it the square?")
    return "Three times three is nine."


class TestOutcomes:
    @pytest.fixture
    def exercise(self):
        return Exercise("square", judge_square, ("one", "two"), lambda: tf.square, minutes=1, difficulty=1)

    def test_wrong_shows_both_values_place_and_cause(self, exercise):
        text = str(exercise.check(lambda x: x + 1))
        for part in (
            "✗ wrong",
            "Looked at: op(3)",
            "Expected: 9.0",
            "Got: 4.0",
            "Likely cause: is it the square?",
        ):
            assert part in text

    def test_error_shows_type_message_and_line_of_the_learner(self, exercise):
        def broken(x):
            return x + tf.constant("text")

        outcome = exercise.check(broken)
        assert outcome.kind == "error"
        assert "Error: " in outcome.lines[0]
        assert 'return x + tf.constant("text")' in outcome.lines[1]

    def test_error_with_a_known_cause_says_what_to_do(self):
        @tf.custom_gradient
        def fixed_dtype(x):  # what a learner writes who thinks of float32 alone
            return tf.where(x > 0, x, 0.1 * x), lambda dy: dy * tf.where(x > 0, 1.0, 0.1)

        outcome = EXERCISES["01.mend_leaky"].check(fixed_dtype)
        assert outcome.kind == "error"
        assert outcome.lines[-1].startswith("What to do: build constants with dtype=x.dtype")

    def test_error_when_grad_returns_too_few_gradients(self):
        @tf.custom_gradient
        def one_gradient(x, q):
            return q, lambda dy: dy

        outcome = EXERCISES["04.exact_straight_through"].check(one_gradient)
        assert outcome.kind == "error"
        assert "expected to return 2 gradients, but returned 1" in outcome.lines[0]
        assert "one gradient for each positional argument" in outcome.lines[-1]

    def test_error_when_the_answer_takes_other_arguments(self, exercise):
        def takes_none():
            return 1

        outcome = exercise.check(takes_none)
        assert outcome.kind == "error"
        assert "takes 0 positional arguments" in outcome.lines[0]

    def test_not_attempted_when_a_stub_raises_deep_inside(self, exercise):
        @tf.function
        def stub(x):
            raise NotImplementedError("your turn")

        assert exercise.check(stub).kind == "not attempted"

    def test_a_forgotten_return_is_named_where_no_line_of_the_learner_raised(self):
        @tf.custom_gradient
        def forgetful(x):
            x * x, lambda dy: dy * 2.0 * x

        outcome = EXERCISES["00.double"].check(forgetful)
        assert outcome.kind == "error"
        assert "is a `return` missing?" in outcome.lines[1]

    def test_numpy_in_a_graph_is_an_error_though_it_raises_not_implemented(self):
        @tf.custom_gradient
        def cube(x):
            return np.asarray(x) ** 3, lambda dy: dy * tf.clip_by_value(3 * x * x, -1.0, 1.0)

        outcome = EXERCISES["01.cube"].check(cube)
        assert outcome.kind == "error"
        assert "np.asarray(x)" in outcome.lines[1]

    def test_a_check_leaves_the_learners_registered_class_in_place(self):
        @keras.saving.register_keras_serializable(package="exercise")
        class ScaledGradient(keras.layers.Layer):  # the solution's registered name
            def __init__(self, factor=1.0):
                self.factor = factor

        outcome = EXERCISES["07.scaled_gradient"].check(ScaledGradient)
        assert outcome.kind == "error"
        assert keras.saving.get_registered_object("exercise>ScaledGradient") is ScaledGradient

    def test_a_function_that_an_earlier_run_has_registered_does_not_stand_in_for_the_answer(self):
        exercise = EXERCISES["07.leaky_backward"]
        right = exercise.solve()
        known = keras.saving.get_registered_name(right)

        def leaky_backward(x):
            return right(x)

        outcome = exercise.check(leaky_backward)
        assert "put @keras.saving.register_keras_serializable on it" in str(outcome)
        assert keras.saving.get_registered_object(known) is right

    def test_broken_installation_is_no_wrong_answer(self, monkeypatch):
        def broken(*_):
            return importlib.import_module("no_such_package_here")

        exercise = EXERCISES["00.double"]
        monkeypatch.setattr("course_utils.exercises.judging.need_callable", broken)
        monkeypatch.setattr("course_utils.exercises.exercise._learners_line", lambda error: None)
        with pytest.raises(ModuleNotFoundError):
            exercise.check(lambda x: 2 * x)

    def test_a_line_of_the_package_is_not_the_learners(self):
        with pytest.raises(AttributeError) as raised:
            judging.compare(None, 1, "nothing")
        assert _learners_line(raised.value.with_traceback(raised.tb.tb_next)) is None

    def test_an_endless_answer_can_be_interrupted(self, exercise):
        def interrupted(x):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            exercise.check(interrupted)

    def test_only_correct_is_true_and_html_is_escaped(self, exercise):
        assert exercise.check(tf.square)
        outcome = exercise.check(lambda x: x / 0 * tf.constant("<b>"))
        assert not outcome
        assert "<b>" not in outcome._repr_html_()
