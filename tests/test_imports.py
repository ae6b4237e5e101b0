"""Which module imports which, and what an import costs."""

import os
import subprocess
import sys

import pytest

import course_utils
from course_utils import _requirements


def python(code: str, **variables) -> subprocess.CompletedProcess:
    """Run code in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TF_")} | variables
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_imports_run_one_way():
    result = python("from importlinter.cli import lint_imports_command; lint_imports_command()")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "0 broken" in result.stdout


@pytest.mark.parametrize("module", ["tensorflow", "keras", "matplotlib", "ipywidgets", "IPython", "pandas"])
def test_import_of_the_package_loads_nothing_heavy(module):
    result = python(f"import sys, course_utils; print({module!r} in sys.modules)")
    assert result.stdout.strip() == "False", result.stderr


@pytest.mark.parametrize("name", course_utils.__all__)
def test_public_names_load_when_asked_for(name):
    assert getattr(course_utils, name).__name__ == name
    assert name in dir(course_utils)


def test_unknown_name_lists_the_known():
    with pytest.raises(AttributeError, match=r"has no attribute 'check_grad'; it offers .*check_gradient"):
        course_utils.check_grad  # noqa: B018 - the access is the test


class TestQuiet:
    CODE = "import course_utils.quiet, tensorflow as tf; print(float(tf.square(3.0)))"

    def test_nothing_on_standard_error(self):
        result = python(self.CODE)
        assert (result.stdout.strip(), result.stderr) == ("9.0", "")

    def test_without_it_there_is_something(self):
        assert python(self.CODE.replace("course_utils.quiet, ", "")).stderr != ""

    def test_leaves_a_readers_own_setting(self):
        code = "import os, course_utils.quiet; print(os.environ['TF_CPP_MIN_LOG_LEVEL'])"
        assert python(code, TF_CPP_MIN_LOG_LEVEL="0").stdout.strip() == "0"

    def test_changes_nothing_once_tensorflow_is_loaded(self):
        code = (
            "import os, sys; sys.modules['tensorflow'] = sys; import course_utils.quiet; print(*os.environ)"
        )
        assert "TF_ENABLE_ONEDNN_OPTS" not in python(code).stdout.split()

    def test_the_package_itself_sets_nothing(self):
        code = "import os, course_utils; print(any(k.startswith('TF_') for k in os.environ))"
        assert python(code).stdout.strip() == "False"


class TestRequirements:
    @pytest.mark.parametrize(
        ("module", "found", "words"),
        [
            ("tensorflow", "2.17.1", "needs tensorflow 2.18 or newer and found 2.17.1: run `pip install"),
            ("keras", "2.15.0", "needs keras 3.12 or newer and found 2.15.0: run `pip install --upgrade"),
        ],
    )
    def test_too_old(self, monkeypatch, module, found, words):
        real = _requirements.installed_version
        monkeypatch.setattr(_requirements, "installed_version", lambda m: found if m == module else real(m))
        with pytest.raises(_requirements.RequirementError, match=words):
            _requirements.check()

    def test_missing(self, monkeypatch):
        monkeypatch.setattr(_requirements, "installed_version", lambda module: None)
        monkeypatch.setattr(_requirements.importlib.util, "find_spec", lambda module: None)
        with pytest.raises(
            ImportError, match=r"needs tensorflow 2.18 or newer and found none: run `pip install"
        ):
            _requirements.check()

    def test_missing_gives_one_sentence_on_import(self):
        blocked = "import sys, importlib.util, importlib.metadata as m\n"
        blocked += "importlib.util.find_spec = lambda *a: None\n"
        blocked += "def gone(name): raise m.PackageNotFoundError(name)\nm.version = gone\nimport course_utils"
        last = python(blocked).stderr.strip().splitlines()[-1]
        assert last.startswith("course_utils._requirements.RequirementError: course_utils needs tensorflow")

    @pytest.mark.parametrize("version", ["2.18.0", "2.18.0rc1", "2.21", "3.0.0.dev2026"])
    def test_new_enough(self, monkeypatch, version):
        monkeypatch.setattr(
            _requirements, "installed_version", lambda m: version if m == "tensorflow" else "3.12"
        )
        _requirements.check()


class TestCheckEnvironment:
    def test_says_what_is_missing_and_what_to_do(self, monkeypatch):
        real = _requirements.importlib.util.find_spec
        monkeypatch.setattr(
            _requirements.importlib.util,
            "find_spec",
            lambda name: None if name == "jupyterlab" else real(name),
        )
        monkeypatch.setattr(_requirements.sys, "version_info", (3, 10, 1))
        report = course_utils.check_environment()
        assert [(c.name, c.detail) for c in report.failures] == [
            ("Python 3.11 to 3.13", "this is 3.10"),
            ("jupyterlab", "it is not installed"),
        ]
        assert all("python3 course.py lab" in c.cure for c in report.failures)
