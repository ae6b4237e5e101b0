"""Custom gradients on every backend of Keras: in fresh processes, and through `everywhere`.

JAX is pinned, so its tests always run; PyTorch is not, and where it is missing its tests say so.
"""

import importlib.util
import itertools
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from course_utils import _requirements, backends, layers
from course_utils.exercises import nb12

NO_TORCH = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not pinned: python -m pip install torch"
)
BACKENDS = ["tensorflow", "jax", pytest.param("torch", marks=NO_TORCH)]
X = np.random.default_rng(21).normal(1.0, 1.5, size=(16, 3)).astype("float32")
DY = np.random.default_rng(22).standard_normal((16, 3)).astype("float32")
BOUND, BITS = 2.5, 3

#: What runs in a fresh process: the op, a model loaded from each file, the layer in `fit`, and a save. On the
#: other backends TensorFlow cannot be imported, so all of it does without.
SCRIPT = """
import json, os, pathlib, sys
if os.environ["KERAS_BACKEND"] != "tensorflow":
    sys.modules["tensorflow"] = None  # as if it were not installed
import numpy as np
import keras
from course_utils.layers import PACT, pact
from course_utils.backends import output_and_gradients

folder, given = pathlib.Path(sys.argv[1]), json.load(sys.stdin)
x, dy = (np.array(given[name], "float32") for name in ("x", "dy"))
y, (dx, dbound) = output_and_gradients(lambda x, b: pact(x, b, given["bits"]), [x, given["bound"]], dy)
result = {"op": [y.tolist(), dx.tolist(), dbound.tolist()], "loaded": {}}
for path in sorted(folder.glob("*.keras")):
    model = keras.saving.load_model(path)
    y, (dx,) = output_and_gradients(model, [x], dy)
    result["loaded"][path.stem] = [y.tolist(), dx.tolist()]
model = keras.saving.load_model(folder / "start.keras")
model.compile(keras.optimizers.SGD(0.05), "mse")
losses = model.fit(x, x[:, ::-1], epochs=3, batch_size=16, verbose=0, shuffle=False).history["loss"]
bound = keras.ops.convert_to_numpy(model.layers[-1].bound)
model.save(folder / f"{keras.backend.backend()}.keras")
y, (dx,) = output_and_gradients(model, [x], dy)
result |= {"losses": losses, "bound": float(bound), "trained": [y.tolist(), dx.tolist()]}
result["backend"] = keras.backend.backend()
print(json.dumps(result))
"""


def fresh(code: str, backend: str, *arguments, given: str = "") -> subprocess.CompletedProcess:
    """Run code in a process of its own, in which Keras runs on a backend."""
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "1"}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, input=given, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Run the script on each installed backend, one after the other: each finds the files of those before."""
    folder = tmp_path_factory.mktemp("models")
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3), layers.PACT(BITS, bound=1.0)])
    model.save(folder / "start.keras")
    given = json.dumps({"x": X.tolist(), "dy": DY.tolist(), "bound": BOUND, "bits": BITS})
    y, (dx,) = backends.output_and_gradients(model, [X], DY)
    found = {"start": {"trained": [y.tolist(), dx.tolist()], "loaded": {}}}
    for backend in backends.installed():
        result = fresh(SCRIPT, backend, str(folder), given=given)
        assert result.returncode == 0, result.stderr[-2000:]
        found[backend] = json.loads(result.stdout.splitlines()[-1])
    # Last, TensorFlow loads what the others have saved.
    for path in sorted(folder.glob("*.keras")):
        y, (dx,) = backends.output_and_gradients(keras.saving.load_model(path), [X], DY)
        found["tensorflow"]["loaded"][path.stem] = [y.tolist(), dx.tolist()]
    return found


def close(got, want, tolerance=1e-5):
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("backend", BACKENDS)
class TestPortableLayer:
    def test_op_has_the_formulas_of_the_paper(self, results, backend):
        n = 2**BITS - 1
        y = np.rint(np.clip(X / BOUND, 0, 1) * n) / n * BOUND
        inside, above = (X >= 0) & (X < BOUND), X >= BOUND
        assert 0 < above.sum() < inside.sum() < X.size
        close(results[backend]["op"], [y, DY * inside, (DY * above).sum()])

    def test_layer_trains_as_on_tensorflow(self, results, backend):
        got, want = results[backend], results["tensorflow"]
        assert got["backend"] == backend
        assert got["losses"][-1] < got["losses"][0]
        assert got["bound"] != 1.0
        close([got["losses"], got["bound"]], [want["losses"], want["bound"]], 1e-4)

    def test_loaded_model_has_the_outputs_and_gradients_of_the_saved_one(self, results, backend):
        assert "start" in results[backend]["loaded"]
        for saved_by, (y, dx) in results[backend]["loaded"].items():
            assert np.any(dx)  # the derivative of rounding is 0
            close([y, dx], results[saved_by]["trained"])


def test_every_file_was_loaded_by_another_backend(results):
    loaded = {(by, on) for on, found in results.items() for by in found["loaded"]}
    for first, second in itertools.combinations(backends.installed(), 2):
        assert (first, second) in loaded
    assert all((by, "tensorflow") in loaded for by in backends.installed())


def test_other_layers_say_why_they_are_missing_on_jax():
    result = fresh("import course_utils.layers as l; print(l.__all__); l.ClipGradient", "jax")
    assert result.stdout.strip() == "['PACT', 'pact']"
    assert "has no attribute 'ClipGradient': Keras runs on jax" in result.stderr


def test_tensorflow_may_be_missing_on_another_backend(monkeypatch):
    real = _requirements.installed_version
    monkeypatch.setattr(_requirements, "installed_version", lambda m: None if m == "tensorflow" else real(m))
    monkeypatch.setattr(_requirements.importlib.util, "find_spec", lambda module: None)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    _requirements.check()
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    with pytest.raises(_requirements.RequirementError, match="needs tensorflow"):
        _requirements.check()


class TestPACT:
    def test_bound_keeps_its_regularizer_and_stays_positive(self):
        layer = layers.PACT(bound=2.0, regularizer=keras.regularizers.L2(0.1))
        twin = layers.PACT.from_config(layer.get_config())
        twin.build((None, 3))
        np.testing.assert_allclose(float(sum(twin.losses)), 0.1 * 2.0**2, rtol=1e-6)
        keras.optimizers.SGD(1.0).apply([keras.ops.array(100.0)], [twin.bound])
        assert float(twin.bound) == pytest.approx(1e-3)

    @pytest.mark.parametrize(
        ("call", "error", "words"),
        [
            (
                lambda: layers.pact(keras.ops.array([1]), 1.0),
                TypeError,
                "x has dtype int32, which has no gradient",
            ),
            (lambda: layers.pact(X, [1.0, 2.0]), ValueError, r"bound has shape \(2,\): give a scalar"),
            (lambda: layers.pact(X, 1.0, bits=0), ValueError, "bits is 0: give an integer from 1 to 16"),
            (lambda: layers.PACT(bits=2.0), ValueError, "bits is 2.0: give an integer from 1 to 16"),
        ],
    )
    def test_refuses(self, call, error, words):
        with pytest.raises(error, match=words):
            call()


def double(numbers):
    return 2 * keras.ops.array(numbers), keras.backend.backend()


def quadruple(numbers):
    return 2 * double(numbers)[0]


def fails(where):
    if keras.backend.backend() == where:
        raise ValueError(f"not on {where}")
    return 1


def ends(where):
    import os
    import sys

    if keras.backend.backend() == where:
        print("last words", file=sys.stderr)
        os._exit(3)
    return 1


class TestEverywhere:
    def test_every_installed_backend_answers_and_a_missing_one_is_named(self, capsys):
        got = backends.everywhere(double, [1.0, 3.0])
        assert got == {name: [[2.0, 6.0], name] for name in backends.installed()}
        lines = capsys.readouterr().out.splitlines()
        assert [line.split(":")[0].strip() for line in lines] == list(backends.BACKENDS)
        missing = [line for line in lines if "not installed, left out" in line]
        assert len(missing) == len(backends.BACKENDS) - len(got)

    def test_takes_helpers_along(self):
        got = backends.everywhere(quadruple, [1.5], using=[double], show=False)
        assert set(map(tuple, got.values())) == {(6.0,)}

    @pytest.mark.parametrize("where", ["tensorflow", "jax"])
    def test_an_error_names_its_backend_or_is_a_result(self, where):
        with pytest.raises(RuntimeError, match=f"on {where}: ValueError: not on {where}"):
            backends.everywhere(fails, where, show=False)
        got = backends.everywhere(fails, where, catch=True, show=False)
        assert got[where] == f"ValueError: not on {where}"
        assert {name for name, found in got.items() if found == 1} == set(got) - {where}

    def test_a_process_that_ends_is_reported_and_started_anew(self):
        with pytest.raises(RuntimeError, match="the process of jax ended: last words"):
            backends.everywhere(ends, "jax", show=False)
        assert backends.everywhere(double, [1.0], show=False)["jax"] == [[2.0], "jax"]

    def test_refuses_what_cannot_be_sent(self):
        with pytest.raises(
            RuntimeError, match="on tensorflow: TypeError: object cannot be sent: give numbers"
        ):
            backends.everywhere(object_, show=False)


def object_():
    return object()


def solved(source, names, inputs):
    """Run a solution, whatever it is, under `keras.ops.custom_gradient`."""
    from course_utils.backends import output_and_gradients

    found = {"keras": keras, "ops": keras.ops}
    exec(source, found)
    rule = found[names[0]]
    rule = rule.rule if isinstance(rule, type) else rule
    y, gradients = output_and_gradients(keras.ops.custom_gradient(rule), inputs, np.ones((4, 3)))
    return [y, *gradients]


@pytest.mark.parametrize(
    ("name", "defines", "inputs"),
    [
        ("portable_sign", "portable_sign", [X[:4]]),
        ("portable_scale", "portable_scale", [X[:4], X[4]]),
        ("mend_layer", "LearnedCut", [X[:4], 0.5]),
    ],
)
def test_solutions_agree_on_all_backends(name, defines, inputs):
    source = getattr(nb12, name).solution_source()
    inputs = [np.asarray(x).tolist() for x in inputs]
    first, *others = backends.everywhere(solved, source, [defines], inputs, show=False).values()
    for other in others:
        close(other, first)
