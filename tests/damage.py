"""What goes wrong while one writes an answer, done to a solution: one damage at a time, by its syntax tree.

Example:
    >>> double = "def double(x):\\n    return 2 * x"
    >>> [damage.name for damage in damages(double) if damage.kind == "drops an operand"]
    ['drops an operand: 2 * x -> 2', 'drops an operand: 2 * x -> x']
    >>> print(next(damages(double)).source)
    def double(x):
        pass
"""

from __future__ import annotations

import ast
import copy
import dataclasses
from collections.abc import Iterator

ENDLESS = "loops for ever"


@dataclasses.dataclass(frozen=True)
class Damage:
    """A solution with one fault: of which kind it is, where, and the code."""

    kind: str
    name: str
    source: str


def damages(source: str) -> Iterator[Damage]:
    """Give every damage of some code, always in the same order."""
    tree = ast.parse(source)
    for number, node in enumerate(ast.walk(tree)):
        for kind, replacement in _replacements(node):
            damaged = copy.deepcopy(tree)
            # A copy is walked in the same order.
            target = next(n for i, n in enumerate(ast.walk(damaged)) if i == number)
            damaged = ast.fix_missing_locations(_Replace(target, replacement).visit(damaged))
            before, after = (_first_line(n) for n in (node, replacement))
            yield Damage(kind, f"{kind}: {before} -> {after}", ast.unparse(damaged))


class _Replace(ast.NodeTransformer):
    def __init__(self, target: ast.AST, replacement: ast.AST):
        self.target, self.replacement = target, replacement

    def visit(self, node):
        return self.replacement if node is self.target else self.generic_visit(node)


def _first_line(node: ast.AST) -> str:
    lines = ast.unparse(node).splitlines()
    if isinstance(node, ast.FunctionDef):  # its decorators come first
        return "; ".join(line.strip() for line in lines[: len(node.decorator_list) + 2])
    return lines[0]


def _replacements(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Give what may stand in a node's place, each with the kind of the damage."""
    match node:
        case ast.FunctionDef():
            yield from _of_function(node)
        case ast.ClassDef(decorator_list=[_, *_]):
            yield "forgets the decorator", _changed(node, decorator_list=[])
        case ast.Return(value=ast.expr() as value):
            yield "forgets return", ast.Expr(value)
            yield "raises", ast.parse('raise ValueError("damaged")').body[0]
            yield from ((kind, ast.Return(result)) for kind, result in _of_result(value))
        case ast.Lambda(body=body):
            yield from ((kind, _changed(node, body=result)) for kind, result in _of_result(body))
        case ast.expr():
            yield from _of_expression(node)


def _of_expression(node: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.BinOp(left=left, op=op, right=right):
            yield from (("drops an operand", operand) for operand in (left, right))
            if isinstance(op, ast.Add | ast.Sub):
                other = ast.Sub() if isinstance(op, ast.Add) else ast.Add()
                yield "flips a sign", _changed(node, op=other)
            if isinstance(op, ast.Sub | ast.Div | ast.Pow | ast.MatMult):
                yield "swaps operands", _changed(node, left=right, right=left)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            yield "flips a sign", operand
        case ast.Compare(left=left, ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE()], comparators=[right]):
            yield "swaps operands", _changed(node, left=right, comparators=[left])
        case ast.Call(args=[first, second, *rest]):
            yield "swaps arguments", _changed(node, args=[second, first, *rest])


def _of_function(node: ast.FunctionDef) -> Iterator[tuple[str, ast.AST]]:
    yield "deletes the body", _changed(node, body=[ast.Pass()])
    yield ENDLESS, _changed(node, body=ast.parse("while True:\n    pass").body)
    if node.decorator_list:
        yield "forgets the decorator", _changed(node, decorator_list=[])
    match node.args.args:
        case [ast.arg(arg="self"), first, second, *rest]:
            order = [node.args.args[0], second, first, *rest]
        case [first, second, *rest] if first.arg != "self":
            order = [second, first, *rest]
        case _:
            return
    yield "swaps parameters", _changed(node, args=_changed(node.args, args=order))


def _of_result(value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Give wrong results in place of what a function returns; of several, the first one is changed."""
    first, rest = (value.elts[0], value.elts[1:]) if isinstance(value, ast.Tuple) else (value, [])
    yield "returns None", ast.Constant(None)
    for kind, code in (
        ("flips a sign", "-({})"),
        ("another dtype", "tf.cast({}, tf.float16)"),
        ("another shape", "tf.expand_dims({}, 0)"),
        ("uses NumPy", "np.asarray({})"),
    ):
        result = ast.parse(code.format(ast.unparse(first)), mode="eval").body
        yield kind, ast.Tuple([result, *rest], ast.Load()) if rest else result
    yield "one result too many", ast.Tuple([first, *(rest or [first]), first], ast.Load())
    if rest:
        yield "one result too few", first if len(rest) == 1 else ast.Tuple([first, *rest[:-1]], ast.Load())


def _changed(node: ast.AST, **fields) -> ast.AST:
    """Give a copy of a node with other fields."""
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed
