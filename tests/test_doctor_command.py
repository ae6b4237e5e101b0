"""`python -m course_utils.doctor`: exit status, usage errors, and errors that are the caller's own."""

import pathlib
import sys

import pytest

from course_utils.doctor.__main__ import main

MODULE = """
import keras
import tensorflow as tf

@keras.saving.register_keras_serializable(package="mine")
class Double(keras.layers.Layer):
    def call(self, x):
        return 2.0 * x

@keras.saving.register_keras_serializable(package="mine")
class Unsure(keras.layers.Layer):
    def call(self, x):
        return x + tf.random.normal([])

def add():
    return keras.layers.Add()

class NeedsUnits(keras.layers.Layer):
    def __init__(self, units):
        super().__init__()

def broken():
    return 1 / 0
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    (tmp_path / "their_layers.py").write_text(MODULE)
    (tmp_path / "their_typo.py").write_text("import a_module_that_is_missing\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "their_layers", raising=False)  # other tests have another of that name
    return tmp_path


FEW = ["--skip", "xla", "trains", "saved", "gradient"]


def test_passes(capsys):
    assert main(["their_layers:Double", "--shape", "4,8", *FEW]) == 0
    assert "✓ Runs, with finite outputs: (4, 8) → (4, 8)" in capsys.readouterr().out


def test_factory_with_two_inputs(capsys):
    assert main(["their_layers:add", "--shape", "4,2", "--shape", "4,2", "--dtype", "float32", *FEW]) == 0
    assert "(4, 2), (4, 2) → (4, 2)" in capsys.readouterr().out


def test_fails_with_status_1(capsys):
    assert main(["their_layers:Unsure", "--shape", "4,8"]) == 1
    assert "✗ Gives the same result twice" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["their_layers", "--shape", "4,8"], "layer must be package.module:Name"),
        (["no_such_module:Double", "--shape", "4,8"], "there is no module 'no_such_module'"),
        (["their_layers:Nothing", "--shape", "4,8"], "has no 'Nothing'"),
        (["their_layers:Double", "--shape", "4x8"], "sizes of 1 or more with commas between, as 4,8"),
        (["their_layers:Double", "--shape", "4,0"], "not '4,0'"),
        (["their_layers:Double", "--shape", "4,8", "--dtype", "float23"], "--dtype"),
        (["their_layers:Double", "--shape", "1,8"], "inputs must be a batch of two"),
        (["their_layers:Double", "--shape", "4,8", "--skip", "xlaa"], "skip: unknown check 'xlaa'"),
        (["their_layers:Double"], "--shape"),
    ],
)
def test_usage_errors_have_status_2(arguments, message, capsys):
    with pytest.raises(SystemExit) as leaving:
        main(arguments)
    assert leaving.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("their_layers:broken", "ZeroDivisionError"),
        ("their_typo:Layer", "ModuleNotFoundError: No module named 'a_module_that_is_missing'"),
        ("their_layers:NeedsUnits", "missing 1 required positional argument: 'units'"),
    ],
)
def test_errors_in_their_module_are_theirs(name, error, capsys):
    assert main([name, "--shape", "4,8"]) == 1
    told = capsys.readouterr().err
    assert error in told
    assert str(pathlib.Path("course_utils", "doctor")) not in told
