"""No false alarms: every layer in `keras.layers` that takes a float tensor passes `check_layer`."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf

from course_utils import check_layer

L = keras.layers
FLAT, STEPS, IMAGE, VOLUME = (3, 4), (3, 4, 3), (3, 4, 4, 2), (2, 4, 4, 4, 1)
BY_RANK = {"1D": STEPS, "2D": IMAGE, "3D": VOLUME}

#: Layers that take what their name ends on (1D, 2D, 3D), with their obvious arguments.
SPATIAL = {
    "AveragePooling": (), "MaxPooling": (), "GlobalAveragePooling": (), "GlobalMaxPooling": (), "Cropping": (), "ZeroPadding": (),
    "UpSampling": (), "Conv": (2, 2), "ConvTranspose": (2, 2), "DepthwiseConv": (2,), "SeparableConv": (2, 2),
    "SpatialDropout": (0.5,), "AdaptiveAveragePooling": (2,), "AdaptiveMaxPooling": (2,),
}  # fmt: skip

#: Every other layer that takes float tensors: a function that makes it, and the shape of its input or inputs.
OTHERS = {
    "Activation": (lambda: L.Activation("tanh"), FLAT),
    "ActivityRegularization": (L.ActivityRegularization, FLAT),
    "AlphaDropout": (lambda: L.AlphaDropout(0.5), FLAT),
    "BatchNormalization": (L.BatchNormalization, FLAT),
    "Bidirectional": (lambda: L.Bidirectional(L.SimpleRNN(2)), STEPS),
    "CenterCrop": (lambda: L.CenterCrop(2, 2), IMAGE),
    "ConvLSTM1D": (lambda: L.ConvLSTM1D(2, 2), (2, 2, 4, 2)),
    "ConvLSTM2D": (lambda: L.ConvLSTM2D(2, 2), (2, 2, 4, 4, 1)),
    "ConvLSTM3D": (lambda: L.ConvLSTM3D(1, 2), (2, 2, 3, 3, 3, 1)),
    "Dense": (lambda: L.Dense(2), FLAT),
    "Discretization": (lambda: L.Discretization(bin_boundaries=[-0.5, 0.5]), FLAT),
    "Dropout": (lambda: L.Dropout(0.5), FLAT),
    "ELU": (L.ELU, FLAT),
    "EinsumDense": (lambda: L.EinsumDense("ab,bc->ac", 2), FLAT),
    "Flatten": (L.Flatten, STEPS),
    "GRU": (lambda: L.GRU(2), STEPS),
    "GaussianDropout": (lambda: L.GaussianDropout(0.5), FLAT),
    "GaussianNoise": (lambda: L.GaussianNoise(0.5), FLAT),
    "GroupNormalization": (lambda: L.GroupNormalization(1), IMAGE),
    "GroupQueryAttention": (lambda: L.GroupQueryAttention(2, 2, 1), (STEPS, {"value": STEPS})),
    "Identity": (L.Identity, FLAT),
    "LSTM": (lambda: L.LSTM(2), STEPS),
    "LayerNormalization": (L.LayerNormalization, FLAT),
    "LeakyReLU": (L.LeakyReLU, FLAT),
    "Masking": (L.Masking, STEPS),
    "MultiHeadAttention": (lambda: L.MultiHeadAttention(2, 2), (STEPS, {"value": STEPS})),
    "Normalization": (lambda: L.Normalization(mean=0.5, variance=2.0), FLAT),
    "PReLU": (L.PReLU, FLAT),
    "Permute": (lambda: L.Permute((2, 1)), STEPS),
    "RMSNormalization": (L.RMSNormalization, FLAT),
    "RNN": (lambda: L.RNN(L.SimpleRNNCell(2)), STEPS),
    "ReLU": (L.ReLU, FLAT),
    "RepeatVector": (lambda: L.RepeatVector(2), FLAT),
    "Rescaling": (lambda: L.Rescaling(0.5), FLAT),
    "Reshape": (lambda: L.Reshape((2, 2)), FLAT),
    "Resizing": (lambda: L.Resizing(2, 2), IMAGE),
    "SimpleRNN": (lambda: L.SimpleRNN(2), STEPS),
    "Softmax": (L.Softmax, FLAT),
    "SpectralNormalization": (lambda: L.SpectralNormalization(L.Dense(2)), FLAT),
    "TimeDistributed": (lambda: L.TimeDistributed(L.Dense(2)), STEPS),
    "UnitNormalization": (L.UnitNormalization, FLAT),
    "Add": (L.Add, [FLAT, FLAT]),
    "AdditiveAttention": (L.AdditiveAttention, [STEPS, STEPS]),
    "Attention": (L.Attention, [STEPS, STEPS]),
    "Average": (L.Average, [FLAT, FLAT]),
    "Concatenate": (L.Concatenate, [FLAT, FLAT]),
    "Dot": (lambda: L.Dot(1), [FLAT, FLAT]),
    "Maximum": (L.Maximum, [FLAT, FLAT]),
    "Minimum": (L.Minimum, [FLAT, FLAT]),
    "Multiply": (L.Multiply, [FLAT, FLAT]),
    "Subtract": (L.Subtract, [FLAT, FLAT]),
}  # fmt: skip
CASES = OTHERS | {
    f"{name.removesuffix('Transpose')}{rank}{'Transpose' * name.endswith('Transpose')}": (None, shape)
    for name in SPATIAL
    for rank, shape in BY_RANK.items()
}


def draw(shape):
    if isinstance(shape, list):
        return [draw(one) for one in shape]
    return np.random.default_rng(11 + len(shape)).normal(size=shape).astype("float32")


def test_explore():
    import time

    for name, (make, shape) in CASES.items():
        if not hasattr(L, name):
            print("absent", name)
            continue
        if make is None:
            base = name.replace("1D", "").replace("2D", "").replace("3D", "")
            make = lambda: getattr(L, name)(*SPATIAL[base])
        shape, kwargs = shape if isinstance(shape, tuple) and isinstance(shape[0], tuple) else (shape, {})
        t = time.process_time()
        report = check_layer(make(), draw(shape), call_kwargs={k: draw(s) for k, s in kwargs.items()})
        print(f"{name} {time.process_time() - t:.2f}", "ok" if report else "FAIL")
        for c in report.checks:
            if c.ok is False or c.ok is None and "left out" not in c.detail:
                print("     ", str(c)[:300])
