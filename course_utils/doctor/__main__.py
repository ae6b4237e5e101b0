"""The command `python -m course_utils.doctor package.module:LayerOrFactory --shape 4,8`."""

from __future__ import annotations

import argparse
import importlib
import operator
import os
import sys
import traceback

import numpy as np
import tensorflow as tf

from course_utils.doctor import check_layer


def main(arguments=None) -> int:
    """Check one layer and print the report; return 0 when nothing failed, else 1 (argparse leaves with 2)."""
    parser = argparse.ArgumentParser(prog="python -m course_utils.doctor", description="Check a Keras layer.")
    add = parser.add_argument
    add("layer", help="package.module:Name of a layer, or of a class or factory, called without arguments")
    add("--shape", action="append", required=True, type=_shape, help="4,8: batch first; once per input")
    add("--dtype", default="float32", type=_dtype, help="of the random inputs (integers are 0 and 1)")
    add("--skip", nargs="+", default=(), metavar="CHECK", help="checks to leave out")
    add("--also", nargs="+", default=(), metavar="CHECK", help="saved_model: a fresh process, seconds more")
    options = parser.parse_args(arguments)
    module, _, name = options.layer.partition(":")
    if not (name and module) or module.startswith("."):
        parser.error(f"layer must be package.module:Name, not {options.layer!r}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        layer = _load(parser, module, name)
    except Exception as error:  # raised by their code: show their part of the traceback
        print("".join(_their_traceback(error)), file=sys.stderr)
        return 1
    try:
        inputs = [_random(shape, options.dtype) for shape in options.shape]
        inputs = inputs if inputs[1:] else inputs[0]
        report = check_layer(layer, inputs, skip=options.skip, also=options.also)
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    print(report)
    return 0 if report else 1


def _load(parser, module, name):
    try:
        home = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module and not module.startswith(f"{error.name}."):
            raise  # a module that theirs imports
        parser.error(f"there is no module {module!r} here ({os.getcwd()}) or installed")
    try:
        found = operator.attrgetter(name)(home)
    except AttributeError:
        parser.error(f"module {module} has no {name!r}")
    if not callable(found) or (hasattr(found, "get_config") and not isinstance(found, type)):
        return found
    try:
        return found()
    except SystemExit as error:
        parser.error(f"{module}:{name} leaves with exit status {error.code}")


def _their_traceback(error) -> list[str]:
    """Format an error without the frames of this module and of the import machinery."""
    told = traceback.TracebackException.from_exception(error)
    ours = (__file__, "importlib")
    theirs = [f for f in told.stack if not any(part in f.filename for part in ours)]
    told.stack = traceback.StackSummary.from_list(theirs)
    return list(told.format())


def _shape(text):
    try:
        shape = tuple(int(size) for size in text.split(","))
    except ValueError:
        shape = ()
    if min(shape, default=0) < 1:
        raise argparse.ArgumentTypeError(f"sizes of 1 or more with commas between, as 4,8, not {text!r}")
    return shape


def _dtype(text):
    dtype = tf.as_dtype(text)
    if not (dtype.is_floating or dtype.is_integer or dtype.is_bool):
        raise ValueError("check_layer takes floats, integers and booleans")
    return dtype


def _random(shape, dtype):
    rng = np.random.default_rng(0)
    return tf.cast(rng.normal(size=shape) if dtype.is_floating else rng.integers(0, 2, shape), dtype)


if __name__ == "__main__":
    sys.exit(main())
