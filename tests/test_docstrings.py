"""Docstrings of public names: what they say beyond what ruff (D, DOC) sees.

Public is what an `__all__` of the package names, or a notebook imports, and the methods of such a class.
ruff holds that a docstring of more than one line names every argument (D417) and every error that is raised
in the body (DOC501). Here: that those names have more than one line, and what a course needs besides.
"""

import ast
import importlib
import inspect
import pathlib
import pkgutil
import re
import textwrap
import types

import nbformat
import pytest

import course_utils.quiet
from course_utils import layers, ops

ROOT = pathlib.Path(__file__).parents[1]
#: Where a formula comes from: the year of its paper or book, or the statement that it is a definition.
SOURCE = re.compile(r"\b(19|20)\d\d\b|\bdefinition\b")
#: A layer, and a function around an op, leave the formula to the op.
OP = re.compile(r"`ops\.\w+`")


def modules() -> list[types.ModuleType]:
    """Give all modules of the package but its command, whose import would run it."""
    found = pkgutil.walk_packages(course_utils.__path__, "course_utils.")
    return [
        course_utils,
        *(importlib.import_module(m.name) for m in found if not m.name.endswith("__main__")),
    ]


def imported_in(path: pathlib.Path) -> set[tuple[str, str]]:
    """Give module and name of all that the code of a notebook imports from the package."""
    cells = nbformat.read(path, as_version=4).cells
    tree = ast.parse("\n".join(c.source for c in cells if c.cell_type == "code"))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {
        (n.module, a.name) for n in imports if (n.module or "").startswith("course_utils") for a in n.names
    }


def public() -> dict[str, object]:
    """Give each public function, class and method, by the name of the place that defines it."""
    exported = {(m.__name__, name) for m in modules() for name in getattr(m, "__all__", ())}
    shown = set().union(*map(imported_in, (ROOT / "notebooks").glob("*.ipynb")))
    values = [getattr(importlib.import_module(module), name) for module, name in exported | shown]
    for module in filter(inspect.ismodule, list(values)):  # a module that is imported whole
        values += [value for name, value in vars(module).items() if name[0] != "_"]
    found = {}
    for value in values:
        # Of an object, such as an exercise, its class is what a reader looks up.
        value = value if inspect.isfunction(value) or inspect.isclass(value) else type(value)
        if value.__module__.startswith("course_utils"):
            found |= {place(value): value, **(methods(value) if inspect.isclass(value) else {})}
    return found


def place(value) -> str:
    """Give where a function or class is defined, without the package's name."""
    return f"{value.__module__}.{value.__qualname__}".removeprefix("course_utils.")


def methods(cls: type) -> dict[str, object]:
    """Give the public methods of a class but those that a base class documents, such as Keras's `call`."""
    own = {n: f for n, f in vars(cls).items() if inspect.isfunction(f) and n[0] != "_"}
    return {place(f): f for n, f in own.items() if not any(hasattr(base, n) for base in cls.__bases__)}


def section(value, title: str) -> str:
    """Give the text under a title of a docstring, empty where there is no such title."""
    found = re.search(rf"^{title}:\n((?:    .*\n|\n)+)", inspect.getdoc(value) + "\n", re.MULTILINE)
    return found.group(1) if found else ""


def raised(value) -> set[str]:
    """Give the names of the errors that a function, or the constructor of a class, raises itself."""
    makers = (
        [value] if inspect.isfunction(value) else [vars(value).get(n) for n in ("__init__", "__post_init__")]
    )
    found = set()
    for function in filter(inspect.isfunction, makers):
        if function.__code__.co_filename.startswith("<"):  # made by dataclasses
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        calls = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise)]
        found |= {ast.unparse(call.func) for call in calls if isinstance(call, ast.Call)}
    return found


def faults(value) -> list[str]:
    """Say what the docstring of a public function, method or class lacks."""
    signature = inspect.signature(value)
    names = [name for name in signature.parameters if name != "self"]
    arguments, errors = section(value, "Args"), section(value, "Raises")
    found = [f"Args: {n}" for n in names if not re.search(rf"^    .*\b{n}\b.*:", arguments, re.MULTILINE)]
    found += [f"Raises: {name}" for name in sorted(raised(value)) if f"{name}:" not in errors]
    if "." in value.__qualname__:  # a method: the class has the example
        return found
    nothing = inspect.isclass(value) or signature.return_annotation in ("None", "Iterator[None]")
    found += [] if nothing or section(value, "Returns") else ["Returns"]
    return found + ([] if ">>> " in section(value, "Example") else ["Example"])


def formula_faults(value) -> list[str]:
    """Say what the docstring of an op or a layer lacks that has to do with tensors and formulas."""
    text = inspect.getdoc(value)
    said = {
        "shape": "shape" in text,
        "dtype": "dtype" in text,
        "source": bool(SOURCE.search(text) or OP.search(text)),
    }
    return [what for what, there in said.items() if not there]


PUBLIC = public()
FORMULAS = {name: getattr(module, name) for module in (ops, layers) for name in module.__all__}


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_public_names_are_documented(name):
    assert faults(PUBLIC[name]) == []


@pytest.mark.parametrize("name", sorted(FORMULAS))
def test_ops_and_layers_tell_shape_dtype_and_source(name):
    assert formula_faults(FORMULAS[name]) == []


def test_what_a_notebook_imports_is_public():
    expected = {"gradients.check_gradient", "datasets.squares", "ops.exact.safe_norm", "report.Report.add"}
    assert expected | {"exercises.exercise.Exercise.check"} <= set(PUBLIC)
    assert not any(name.endswith(".get_config") for name in PUBLIC)  # Keras documents it


class TestTheGuardsThemselves:
    def test_finds_what_a_function_does_not_tell(self):
        def halve(x, *, digits=3) -> float:
            """Divide by two.

            Args:
                x: A float.
            """
            if digits < 0:
                raise ValueError("digits")
            return round(x / 2, digits)

        halve.__qualname__ = "halve"
        assert faults(halve) == ["Args: digits", "Raises: ValueError", "Returns", "Example"]

    def test_finds_what_a_constructor_does_not_tell(self):
        class Half:
            """A half.

            Args:
                x, y: Floats.

            Example:
                >>> Half(1, 2, 3)
            """

            def __init__(self, x, y, z):
                if x == y:
                    raise TypeError(z)

        Half.__qualname__ = "Half"
        assert faults(Half) == ["Args: z", "Raises: TypeError"]

    def test_finds_an_op_without_source(self):
        def bare(x):
            """Forward: `y = x`."""

        assert formula_faults(bare) == ["shape", "dtype", "source"]
