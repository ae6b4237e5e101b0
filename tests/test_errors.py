"""An error is shown in one line that is the same on every machine."""

import os
import sys

import keras
import pytest
import tensorflow as tf

from course_utils.errors import expected_error, first_sentence, hidden_log


def test_autograph_s_call_stack_is_left_out():
    @tf.function
    def f(x):
        if x > 0:
            raise RuntimeError("no positive numbers")
        return x

    with pytest.raises(RuntimeError) as raised:
        f(tf.constant(1.0))
    assert first_sentence(raised.value) == "RuntimeError: no positive numbers"


def test_keras_s_arguments_are_left_out():
    class Broken(keras.layers.Layer):
        def call(self, inputs):
            raise ValueError("this layer is broken")

    with pytest.raises(ValueError, match="broken") as raised:
        Broken()(tf.ones((2, 2)))
    text = first_sentence(raised.value)
    assert "this layer is broken" in text
    assert "Arguments received" not in text
    assert "\x1b" not in text


def test_long_messages_are_cut():
    assert first_sentence(ValueError("x" * 500), limit=20) == "ValueError: " + "x" * 19 + "…"


def test_expected_error_prints_it(capsys):
    with expected_error():
        raise ValueError("at 0x7f00aa")
    assert capsys.readouterr().out == "ValueError: at 0x…\n"


def test_expected_error_wants_one():
    with pytest.raises(AssertionError, match="expected to raise"), expected_error():
        pass


def test_log_is_hidden_in_the_block_only_and_python_s_own_is_not(capfd):
    with hidden_log():
        os.write(2, b"W0000 op_kernel.cc")
        print("from Python", file=sys.stdout)
    os.write(2, b"afterwards")
    assert tuple(capfd.readouterr()) == ("from Python\n", "afterwards")


def test_log_comes_back_after_an_error(capfd):
    with pytest.raises(ValueError, match="broken"), hidden_log():
        raise ValueError("broken")
    os.write(2, b"afterwards")
    assert capfd.readouterr().err == "afterwards"
