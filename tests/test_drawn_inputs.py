"""Properties of `check_gradient` over shapes, dtypes and numbers that hypothesis draws."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from course_utils import check_gradient

SHAPES = hnp.array_shapes(min_dims=0, max_dims=3, max_side=3)
SETTINGS = settings(max_examples=12, deadline=None, derandomize=True, database=None)


def arrays(dtypes):
    """Draw arrays of one of the dtypes, of any shape, that hold numbers from -2 to 2."""

    def of(dtype):
        signed = dtype.startswith("i")
        whole = st.integers(-2 if signed else 0, 2 if dtype != "bool" else 1)
        return hnp.arrays(dtype, SHAPES, elements=st.floats(-2, 2, width=16) if "float" in dtype else whole)

    return st.sampled_from(dtypes).flatmap(of)


@SETTINGS
@given(x=arrays(["float16", "float32", "float64", ">f8"]))
def test_a_right_gradient_passes_for_any_shape_and_float(x):
    before = x.copy()
    report = check_gradient(tf.tanh, x)
    assert report, str(report)
    np.testing.assert_array_equal(x, before)


@SETTINGS
@given(x=arrays(["float32", "float64"]))
def test_a_gradient_of_the_wrong_sign_fails_for_any_shape(x):
    @tf.custom_gradient
    def backwards(x):
        return tf.tanh(x), lambda dy: -dy * (1 - tf.tanh(x) ** 2)

    report = check_gradient(backwards, x)
    assert not report
    assert "sign" in str(report)


@SETTINGS
@given(x=arrays(["int8", "uint8", "int32", "int64", "bool"]))
def test_integers_alone_are_refused_by_name(x):
    with pytest.raises(ValueError, match="inputs: only integers"):
        check_gradient(tf.identity, x)


@SETTINGS
@given(x=arrays(["float32", "float64"]).filter(lambda x: x.size), data=st.data())
def test_the_place_of_a_number_that_is_not_finite_is_named(x, data):
    index = data.draw(st.integers(0, x.size - 1))
    x.flat[index] = data.draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    with pytest.raises(ValueError, match="give finite inputs"):
        check_gradient(tf.tanh, x)
