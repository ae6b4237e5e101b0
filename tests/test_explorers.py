"""An explorer is built once, moves only its lines, and says what goes wrong."""

import base64
import io
import re

import ipywidgets as widgets
import matplotlib as mpl
import numpy as np
import pytest
import tensorflow as tf

from course_utils import Curve, Slider, explore, explore_op, ops
from course_utils.explorers import sweep


def wave(frequency=1.0, height=1.0):
    x = np.linspace(0, 6, 50)
    return {"sine": (x, height * np.sin(frequency * x)), "zero": Curve(x, 0 * x, kind="points")}


def one_line(a):
    return {"line": ([0, 1], [0, a])}


@pytest.fixture
def explorer():
    return explore(wave, title="a wave", frequency=(0.5, 3.0), height=Slider(0, 4, value=2))


def drawn(svg):
    """Give all that an SVG draws: paths, and where markers stand. Names of definitions differ."""
    return set(re.findall(r' d="([^"]*)"', svg)) | set(re.findall(r'<use [^>]*x="(.*?)" y="(.*?)"', svg))


def data(explorer, label="sine"):
    return explorer._lines["", label].get_ydata()


class TestMoving:
    def test_a_slider_changes_the_data_of_the_lines(self, explorer):
        figure, line = explorer.figure, explorer._lines["", "sine"]
        explorer.sliders["frequency"].value = 2.0
        assert explorer.figure is figure
        assert explorer._lines["", "sine"] is line
        np.testing.assert_allclose(data(explorer), wave(2.0, 2)["sine"][1])

    def test_the_picture_with_its_lines_drawn_anew_is_the_whole_figure(self):
        limits = {"curves": (-4, 4), "steps": (-4, 4)}

        def two_panels(height=1.0):
            curves = wave(1.0, height)
            return {"curves": curves, "steps": {"steps": Curve(*curves["sine"], kind="steps")}}

        explorer = explore(two_panels, ylim=limits, height=(0.0, 4.0))
        explorer.sliders["height"].value = 3
        whole = io.StringIO()
        with mpl.rc_context({"svg.fonttype": "none"}):
            explorer.figure.savefig(whole, format="svg")
        assert drawn(explorer._view.value) == drawn(whole.getvalue())

    def test_the_picture_changes(self, explorer):
        before = explorer._view.value
        explorer.sliders["frequency"].value = 2.0
        assert explorer._view.value != before

    def test_the_axes_stay(self, explorer):
        before = explorer.figure.axes[0].get_ylim()
        explorer.sliders["height"].value = 4
        assert explorer.figure.axes[0].get_ylim() == before

    def test_starts_at_the_default_of_the_function(self, explorer):
        assert explorer.values == {"frequency": 1.0, "height": 2}
        assert repr(explorer) == "a wave: frequency = 1, height = 2"

    def test_whole_numbers_stay_whole(self, explorer):
        assert isinstance(explorer.sliders["height"], widgets.IntSlider)

    def test_logarithmic_slider_starts_on_its_own_grid(self):
        explorer = explore(lambda h: {"h": ([0, 1], [h, h])}, h=Slider(1e-6, 1e-2, log=True, value=1.02e-3))
        slider = explorer.sliders["h"]
        steps = (np.log10(slider.value) - slider.min) / slider.step
        assert steps == pytest.approx(round(steps))
        assert slider.value == pytest.approx(1e-3, rel=0.1)
        slider.value = 1e-5
        np.testing.assert_allclose(data(explorer, "h"), 1e-5)


class TestErrors:
    def test_a_callback_that_raises_shows_its_error(self):
        def fragile(size=1.0):
            if size > 2:
                raise RuntimeError("too <large>")
            return {"line": ([0, 1], [size, size])}

        explorer = explore(fragile, size=(0.0, 3.0))
        explorer.sliders["size"].value = 3.0
        assert isinstance(explorer.error, RuntimeError)
        assert "RuntimeError: too &lt;large&gt;" in explorer._view.value
        with pytest.raises(RuntimeError, match="too <large>") as raised:
            sweep([explorer])
        assert raised.value.__notes__ == ["explorer 'fragile' at {'size': 3.0}"]
        explorer.sliders["size"].value = 1.0
        assert explorer.error is None
        assert explorer._view.value.startswith("<svg")

    def test_a_curve_that_comes_and_goes(self):
        explorer = explore(lambda n: {f"curve {n}": ([0, 1], [0, 1])}, n=(1, 3))
        explorer.sliders["n"].value = 3
        assert "names must not change" in str(explorer.error)

    @pytest.mark.parametrize(
        ("call", "error", "words"),
        [
            (lambda: explore(3, a=(0, 1)), TypeError, "f is 3: give a function"),
            (lambda: explore(wave, frequency=(0.5, 3)), TypeError, "give one for each"),
            (lambda: explore(wave), TypeError, "give one for each"),
            (lambda: explore(wave, frequency=2, height=(0, 1)), TypeError, "slider frequency is 2: give"),
            (lambda: explore(wave, frequency=(3, 1), height=(0, 1)), ValueError, "give the lower end first"),
            (
                lambda: explore(wave, frequency=(2, 3), height=(0, 1)),
                ValueError,
                "value is 1.0: give",
            ),
            (lambda: Slider(-1, 1, log=True), ValueError, "is empty"),
            (lambda: explore(lambda a: [1, 2], a=(0, 1)), ValueError, "return a dict of named curves"),
            (lambda: explore(lambda a: {"c": ([1], [1, 2])}, a=(0, 1)), ValueError, "of one length"),
            (lambda: Curve([1], [1], kind="bars"), ValueError, "kind is 'bars': give one of line, points"),
            (lambda: explore(one_line, ylim=(1, 0), a=(0, 1)), ValueError, r"ylim is \(1, 0\): give"),
            (lambda: explore(one_line, ylim="ab", a=(0, 1)), ValueError, "ylim is 'ab': give"),
            (lambda: explore(one_line, ylim=(0, np.inf), a=(0, 1)), ValueError, r"ylim is \(0, inf\): give"),
            (lambda: explore(one_line, ylim={"b": (0, 1)}, a=(0, 1)), ValueError, r"panels \['b'\]: give"),
            (lambda: explore(one_line, ylabel=("y", "z"), a=(0, 1)), ValueError, "one for each panel of"),
            (lambda: explore_op(3, a=(0, 1)), TypeError, "make_op is 3: give a function"),
            (lambda: explore_op(lambda a: tf.sin, reference=3, a=(0, 1)), TypeError, "reference is 3"),
        ],
    )
    def test_bad_input(self, call, error, words):
        with pytest.raises(error, match=words):
            call()


class TestReading:
    def test_carries_a_picture_and_a_stable_text(self, explorer):
        bundle = explorer._repr_mimebundle_()
        assert bundle["text/plain"] == "a wave: frequency = 1, height = 2"
        assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
        assert bundle["image/png"] == explorer._repr_mimebundle_()["image/png"]
        assert "application/vnd.jupyter.widget-view+json" in bundle

    def test_picture_is_named_for_screen_readers_and_styles_nothing_else(self, explorer):
        svg = explorer.svg()
        assert svg.startswith('<svg role="img"')
        assert "<title>a wave: frequency = 1, height = 2</title>" in svg
        assert "<style" not in svg

    def test_sliders_have_a_description_a_unit_and_a_readout(self):
        explorer = explore(lambda rate: {"r": ([0, 1], [0, rate])}, rate=Slider(0.0, 1.0, unit="1/s"))
        assert explorer.sliders["rate"].description == "rate [1/s]"
        assert explorer.sliders["rate"].readout


class TestSettings:
    def test_default_ends_and_corners(self, explorer):
        settings = [tuple(s.values()) for s in explorer.settings()]
        assert settings[0] == (1.0, 2)
        assert set(settings[1:5]) == {(0.5, 2), (3.0, 2), (1.0, 0), (1.0, 4)}
        assert set(settings[5:]) == {(0.5, 0), (0.5, 4), (3.0, 0), (3.0, 4)}

    def test_progress_is_shown_to_functions_that_report_it(self):
        seen = []

        def slow(n=1, progress=None):
            progress(0.5)
            seen.append(explorer._progress.value if n == 2 else None)
            return {"line": ([0, 1], [0, n])}

        explorer = explore(slow, n=(1, 3), on_release=True)
        assert explorer._progress.layout.visibility == "hidden"
        explorer.sliders["n"].value = 2
        assert seen[-1] == 0.5
        assert not explorer.sliders["n"].continuous_update
        assert explorer._progress.layout.visibility == "hidden"


def test_explore_op_draws_the_live_op():
    def make_op(bound=1.0):
        return lambda x: ops.square_with_clipped_grad(x, bound)

    explorer = explore_op(make_op, bound=(0.5, 4.0), reference=tf.square, x=(-1, 1))
    for bound in (1.0, 0.5):
        explorer.sliders["bound"].value = bound
        x = np.linspace(-1, 1, 201)
        got = explorer._lines["backward", "op"].get_ydata()
        np.testing.assert_allclose(got, np.clip(2 * x, -bound, bound), atol=1e-6)
        np.testing.assert_allclose(explorer._lines["backward", "reference"].get_ydata(), 2 * x, atol=1e-6)
