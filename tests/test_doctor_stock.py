"""No false alarms: every layer in `keras.layers` that takes a float tensor passes `check_layer`."""

import inspect
import itertools
import re

import keras
import numpy as np
import pytest
from packaging.version import Version

from course_utils import check_layer

L = keras.layers
FLAT, STEPS, IMAGE, VOLUME = (3, 4), (3, 4, 3), (3, 4, 4, 2), (2, 4, 4, 4, 1)
BY_RANK = {"1D": STEPS, "2D": IMAGE, "3D": VOLUME}

#: Layers that take what their name ends on (1D, 2D, 3D), with their obvious arguments.
SPATIAL = {
    "AveragePooling": (2,),
    "MaxPooling": (),
    "GlobalAveragePooling": (),
    "GlobalMaxPooling": (),
    "Cropping": (),
    "ZeroPadding": (),
    "UpSampling": (),
    "Conv": (2, 2),
    "ConvTranspose": (2, 2),
    "DepthwiseConv": (2,),
    "SeparableConv": (2, 2),
    "SpatialDropout": (0.5,),
    "AdaptiveAveragePooling": (2,),
    "AdaptiveMaxPooling": (2,),
}

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
    "GroupedQueryAttention": (lambda: L.GroupQueryAttention(2, 2, 1), (STEPS, {"value": STEPS})),
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
}
CASES = OTHERS | {
    f"{name.removesuffix('Transpose')}{rank}{'Transpose' * name.endswith('Transpose')}": (None, shape)
    for name in SPATIAL
    for rank, shape in BY_RANK.items()
    if hasattr(L, name + rank) or name == "ConvTranspose"
}


#: Image augmentation: random at training; at inference most returns its input. It takes images from 0 to 255.
AUGMENTATION = {
    "AugMix": {},
    "AutoContrast": {},
    "ContrastLimitedAdaptiveHistogramEqualization": {},
    "CutMix": {},
    "Equalization": {},
    "MixUp": {},
    "RandAugment": {},
    "RandomBrightness": {"factor": 0.1},
    "RandomColorDegeneration": {"factor": 0.1},
    "RandomColorJitter": {},
    "RandomContrast": {"factor": 0.1},
    "RandomCrop": {"height": 4, "width": 4},
    "RandomElasticTransform": {},
    "RandomErasing": {},
    "RandomFlip": {},
    "RandomGaussianBlur": {},
    "RandomGrayscale": {},
    "RandomHue": {"factor": 0.1},
    "RandomInvert": {},
    "RandomPerspective": {},
    "RandomPosterization": {"factor": 4},
    "RandomRotation": {"factor": 0.1},
    "RandomSaturation": {"factor": 0.1},
    "RandomSharpness": {"factor": 0.1},
    "RandomShear": {},
    "RandomTranslation": {"height_factor": 0.1, "width_factor": 0.1},
    "RandomZoom": {"height_factor": 0.1},
    "Solarization": {},
}

#: Layers without a float tensor as input, or without a meaning of their own.
OUTSIDE = {
    "CategoryEncoding": "integers",
    "Embedding": "integers",
    "ReversibleEmbedding": "integers",
    "Hashing": "integers",
    "HashedCrossing": "integers",
    "IntegerLookup": "integers",
    "StringLookup": "strings",
    "TextVectorization": "strings",
    "FlaxLayer": "another framework",
    "JaxLayer": "another framework",
    "TorchModuleWrapper": "another framework",
    "Lambda": "no meaning of its own",
    "TFSMLayer": "a file",
    "InputLayer": "no call",
    "Layer": "abstract",
    "Wrapper": "abstract",
    "Pipeline": "a list of layers",
    "GRUCell": "one step of a layer",
    "LSTMCell": "one step of a layer",
    "SimpleRNNCell": "one step of a layer",
    "StackedRNNCells": "one step of a layer",
    "MaxNumBoundingBoxes": "bounding boxes",
    "STFTSpectrogram": "audio",
    "MelSpectrogram": "audio",
}


def draw(shape):
    if isinstance(shape, list):
        return [draw(one) for one in shape]
    return np.random.default_rng(11 + len(shape)).normal(size=shape).astype("float32")


def make_and_feed(name):
    if name in AUGMENTATION:
        images = np.random.default_rng(3).uniform(0, 255, (2, 4, 4, 3)).astype("float32")
        layer = getattr(L, name)(**AUGMENTATION[name])
        return (
            layer,
            images,
            {"training": False} if "training" in inspect.signature(layer.call).parameters else {},
        )
    make, shape = CASES[name]
    layer = make() if make else getattr(L, name)(*SPATIAL[re.sub(r"[123]D", "", name)])
    shape, kwargs = shape if isinstance(shape, tuple) and isinstance(shape[0], tuple) else (shape, {})
    return layer, draw(shape), {key: draw(value) for key, value in kwargs.items()}


def stock_layers():
    """The names of the layer classes in `keras.layers`; an alias counts once."""
    return {kind.__name__ for kind in vars(L).values() if inspect.isclass(kind) and issubclass(kind, L.Layer)}


#: All three dimensions share one class; tracing its loops takes most of the time.
SHORT = {"ConvLSTM2D": ("xla", "outer_tape", "trains"), "ConvLSTM3D": ("xla", "outer_tape", "trains")}

#: Layers that fail for a reason of their own: the first failing line says it.
EXEMPT = {
    # It changes the symbolic input in place, so Keras can't put it into a functional model; an older one says
    # it in other words.
    "Equalization": ("Takes any batch size", "is part of a cycle|not connected to `outputs`"),
    # It returns float32 whatever its dtype policy is.
    "RandomCrop": ("Works in mixed_float16", "the output is float32, not float16"),
}
if Version(keras.__version__) < Version("3.15"):
    # Its symbolic output had the batch size that the layer was built with.
    EXEMPT["EinsumDense"] = ("Takes any batch size", "a symbolic output has a fixed batch size")


def test_every_layer_is_listed():
    assert stock_layers() - {*CASES, *AUGMENTATION, *OUTSIDE} == set()  # an older Keras has fewer


def param(number, name):
    """Mark the layers that the test line leaves out: two of three."""
    return pytest.param(name, marks=[] if number % 3 == 0 else pytest.mark.full)


CHECKED = sorted(stock_layers() & {*CASES, *AUGMENTATION} - set(EXEMPT))


@pytest.mark.parametrize("name", list(itertools.starmap(param, enumerate(CHECKED))))
def test_stock_layer_passes(name):
    layer, inputs, call_kwargs = make_and_feed(name)
    skip = SHORT.get(name, ("xla", "trains") if name in AUGMENTATION else ())
    report = check_layer(layer, inputs, call_kwargs=call_kwargs, skip=skip)
    assert report, str(report)


@pytest.mark.parametrize("name", sorted(EXEMPT))
def test_exempt_layer_fails_for_its_own_reason(name):
    title, words = EXEMPT[name]
    layer, inputs, call_kwargs = make_and_feed(name)
    first = check_layer(layer, inputs, call_kwargs=call_kwargs).failures[0]
    assert first.name.startswith(title)
    assert re.search(words, first.detail)


@pytest.mark.parametrize("seed", [1, 6, 18])
def test_chance_is_no_blocked_gradient(seed):
    # With the seeds 6 and 18, dropout takes all of this batch in both of the first steps.
    x = np.random.default_rng(0).normal(size=(2, 1)).astype("float32")
    assert check_layer(L.Dropout(0.5, seed=seed), x)


def test_random_layer_is_not_compared_where_its_numbers_differ():
    images = make_and_feed("RandomFlip")[1]
    report = check_layer(L.RandomFlip(seed=1), images, call_kwargs={"training": True})
    assert report, str(report)
    told = {note.name: note.detail for note in report.notes}
    assert told["Works in mixed_float16"] == "left out, the layer draws random numbers"
