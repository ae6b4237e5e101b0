"""The files that bring the course to a machine agree with one another, and none names a machine."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jsonschema
import pytest
import yaml
from jupyterlab.commands import get_app_dir
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from course_utils import _requirements

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OVERRIDES = ROOT / "binder" / "jupyter" / "labconfig" / "default_setting_overrides.json"


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def course_files() -> list[Path]:
    """List the repository's files; in a downloaded archive, without git, those that .gitignore keeps."""
    if (ROOT / ".git").exists():
        return [path for name in git("ls-files", "-z").split("\0")[:-1] if (path := ROOT / name).is_file()]
    ignored = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line[:1] != "#"]
    return [
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not any(part.match(name) for name in ignored for part in [path, *path.parents])
    ]


def pins() -> list[Requirement]:
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-e"))]


def direct_dependencies() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"].values()
    return [Requirement(line) for group in (PROJECT["dependencies"], *extras) for line in group]


# Files that other programs run.


@pytest.mark.parametrize("name", [".ci/run", "binder/postBuild", "binder/start"])
def test_scripts_are_executable(name):
    # Asked of git: on Windows the file itself does not know, and a clone gets what git has.
    if (ROOT / ".git").exists():
        assert git("ls-files", "--stage", name).startswith("100755 ")
    assert (ROOT / name).read_bytes().startswith(b"#!/usr/bin/env bash\n")


def test_readme_and_ci_hold_the_same_two_lines():
    fenced = re.findall(r"^```\w*\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    in_readme = {line for block in fenced for line in block.splitlines()}
    in_ci = (ROOT / ".ci" / "run").read_text()
    assert {"python3 course.py lab", "python3 course.py test"} <= in_readme
    assert re.search(r"^python3 course\.py test$", in_ci, re.MULTILINE)
    assert re.search(r"^python3 course\.py lab ", in_ci, re.MULTILINE)


def test_readme_names_the_pinned_tensorflow_for_a_gpu():
    named = re.findall(r"tensorflow\[and-cuda\]==([\d.]+)", (ROOT / "README.md").read_text())
    pinned = {str(pin.specifier)[2:] for pin in pins() if pin.name.startswith("tensorflow")}
    assert named
    assert set(named) == pinned


@pytest.mark.skipif(os.name == "nt", reason="Binder runs Linux")
@pytest.mark.parametrize(("limit", "threads"), [("2.0", "2"), ("1", "1"), ("0.5", "1"), ("12.7", "12")])
def test_binder_start_caps_the_threads(limit, threads):
    environment = started({"CPU_LIMIT": limit})
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        assert environment[name] == threads


@pytest.mark.skipif(os.name == "nt", reason="Binder runs Linux")
def test_binder_start_hands_over_with_the_course_defaults():
    assert "OMP_NUM_THREADS" not in started({})
    defaults = str(ROOT / "binder" / "jupyter")
    assert started({})["JUPYTER_CONFIG_PATH"] == defaults
    assert started({"JUPYTER_CONFIG_PATH": "/mine"})["JUPYTER_CONFIG_PATH"] == f"{defaults}:/mine"


def started(variables: dict[str, str]) -> dict[str, str]:
    """Give the environment of a program that binder/start starts, in a shell that knows only `variables`."""
    show = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]
    command = [ROOT / "binder" / "start", *show]
    only = {"PATH": os.environ["PATH"], **variables}
    return json.loads(subprocess.run(command, env=only, check=True, capture_output=True, text=True).stdout)


# One list of versions.


@pytest.mark.parametrize("name", ["environment.yml", "binder/environment.yml"])
def test_conda_brings_a_python_that_the_package_allows(name):
    python = yaml.safe_load((ROOT / name).read_text())["dependencies"][0]
    assert re.fullmatch(r"python=3\.\d+", python)
    assert f"{python.removeprefix('python=')}.0" in SpecifierSet(PROJECT["requires-python"])


def test_every_road_hands_over_to_requirements():
    binder = yaml.safe_load((ROOT / "binder" / "environment.yml").read_text())
    conda = yaml.safe_load((ROOT / "environment.yml").read_text())
    python = binder["dependencies"][0]
    assert binder["dependencies"] == [python, "pip"]
    assert conda["dependencies"] == [python, "pip", {"pip": ["-r requirements.txt"]}]
    assert "pip install --no-cache-dir -r requirements.txt" in (ROOT / "binder" / "postBuild").read_text()


def test_requirements_hold_exact_versions_and_end_with_the_package():
    lines = [
        line for line in (ROOT / "requirements.txt").read_text().splitlines() if line[:1] not in ("", "#")
    ]
    assert lines[-1] == "-e ."
    for line in lines[:-1]:
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+]+( ; [^#]+)?", line), line
        Requirement(line)  # raises where the marker is wrong


def test_requirements_satisfy_pyproject():
    for needed in direct_dependencies():
        found = [pin for pin in pins() if pin.name == needed.name]
        assert found, f"pyproject.toml asks for {needed}, and requirements.txt has no {needed.name}"
        for pin in found:
            version = Version(str(pin.specifier)[2:])
            assert version in needed.specifier, f"{pin} is outside {needed}"


def test_one_tensorflow_for_each_platform():
    for system, machine in [
        ("linux", "x86_64"),
        ("linux", "aarch64"),
        ("darwin", "arm64"),
        ("win32", "AMD64"),
    ]:
        place = {"sys_platform": system, "platform_machine": machine}
        for source in (direct_dependencies(), pins()):
            names = [r.name for r in source if r.name.startswith("tensorflow") and r.marker.evaluate(place)]
            smaller = (system, machine) == ("linux", "x86_64")  # tensorflow-cpu has wheels there
            assert names == ["tensorflow-cpu" if smaller else "tensorflow"]


def test_the_check_on_import_has_the_lower_bounds_of_pyproject():
    bounds = {}
    for needed in direct_dependencies():
        module = needed.name.removesuffix("-cpu")
        if module in _requirements.MINIMUM:
            lowest = {clause.version for clause in needed.specifier if clause.operator == ">="}
            bounds[module] = bounds.get(module, set()) | lowest
    assert bounds == {module: {minimum} for module, minimum in _requirements.MINIMUM.items()}


# JupyterLab.


def test_jupyterlab_knows_every_default_that_the_course_sets():
    """A setting that JupyterLab renames would be ignored in silence."""
    schemas = Path(get_app_dir()) / "schemas"
    defaults = json.loads(OVERRIDES.read_text())
    assert len(defaults) == 2
    for plugin, settings in defaults.items():
        package, name = plugin.split(":")
        schema = json.loads((schemas / package / f"{name}.json").read_text(encoding="utf-8"))
        for key, value in settings.items():
            assert key in schema["properties"], f"{plugin} has no setting {key}"
            rule = {"definitions": schema.get("definitions", {}), **schema["properties"][key]}
            jsonschema.validate(value, rule)
            assert value != schema["properties"][key].get("default"), f"{key} is the default already"


# No name of a machine. The patterns come in pieces, or this file would hold what it looks for.

_HOMES = "|".join(("home", "Users", "root", "work", "tmp", "opt", "srv", "mnt"))  # noqa: FLY002
# The Littlest JupyterHub is in this folder on every machine that has it.
_PATH = rf"(?<![\w.~}})/-])/(?!opt/tljh/)(({_HOMES})/\w|usr/(local/)?lib/python\d)|\b[A-Za-z]:\\+[U]sers\b"
FORBIDDEN = {
    "an absolute path of a machine": re.compile(_PATH),
    "the host of a package registry": re.compile(
        "|".join(
            re.escape(".".join(parts))
            for parts in [
                ("pypi", "org"),
                ("pythonhosted", "org"),
                ("npmjs", "org"),
                ("yarnpkg", "com"),
                ("anaconda", "org"),
                ("debian", "org"),
                ("ubuntu", "com"),
            ]
        )
    ),
}


def breaches(text: str) -> list[str]:
    return [f"{what}: {m.group()}" for what, pattern in FORBIDDEN.items() for m in pattern.finditer(text)]


@pytest.mark.parametrize(
    "line",
    [
        "open('/" + "home/ann/course')",
        "/" + "root/course/layer.py",
        'File "/' + 'usr/lib/python3/dist-packages/keras"',
        "C:" + r"\Users\ann",
        "--index-url https://" + "pypi" + ".org/simple",
    ],
)
def test_a_breach_is_seen(line):
    assert len(breaches(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "cp notebooks/01.ipynb my_work/01.ipynb",
        "#!/usr/bin/env bash",
        "https://example.net/home/page",
        "$here/work/x",
        "/opt/tljh/config",
        "7.5 m/work/2 s",
    ],
)
def test_an_innocent_line_passes(line):
    assert breaches(line) == []


def test_no_file_names_a_machine():
    found = []
    for path in course_files():
        if path.suffix == ".svg":
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture
        found += [f"{path.relative_to(ROOT)}: {breach}" for breach in breaches(text)]
    assert found == []
