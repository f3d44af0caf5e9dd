"""What must be true of a .pt2 file before torch.export may read it.

torch.export itself takes such a file for trusted. It unpickles code where weights don't load as mere data, it runs
machine code that was packed beside the graph, and it hands shape expressions to sympy, which evaluates them as Python.
"""

import ast
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from moorage.workers.runtimes.base import BrokenContract

_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
_OPERATOR = re.compile(r"torch\.ops\.[A-Za-z0-9_.]+|torch\._?sym_\w+|_operator\.\w+|math\.\w+")
_NAME_OR_NUMBER = re.compile(r"(?!.*__)[A-Za-z_][A-Za-z0-9_]*|[0-9.e+-]+")
_STRUCTURE = (
    ast.Expression,
    ast.UnaryOp,
    ast.BinOp,
    ast.Compare,
    ast.keyword,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
    ast.expr_context,
)
_SYMPY_FUNCTIONS = (
    "Symbol Integer Float Rational Add Mul Pow Max Min Abs floor ceiling Mod Eq Ne Lt Le Gt Ge And Or Not Equality "
    "Unequality StrictLessThan LessThan StrictGreaterThan GreaterThan Piecewise ExprCondPair"
)
# Of torch.utils._sympy.functions.
_TORCH_FUNCTIONS = (
    "FloorDiv ModularIndexing Where PythonMod CleanDiv CeilToInt FloorToInt CeilDiv IntTrueDiv FloatTrueDiv LShift "
    "RShift IsNonOverlappingAndDenseIndicator TruncToFloat TruncToInt RoundToInt RoundDecimal ToFloat FloatPow "
    "PowByNatural Identity"
)
_FUNCTIONS = frozenset(_SYMPY_FUNCTIONS.split() + _TORCH_FUNCTIONS.split())


@contextmanager
def weights_only() -> Iterator[None]:
    """Hold torch.load to data. The switch is the process's; models are built one at a time, so it is off for others."""
    before = os.environ.get(_FORCE)
    os.environ[_FORCE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FORCE]
        else:
            os.environ[_FORCE] = before


def check_archive(path: Path) -> None:
    """Raises BrokenContract for a file that could bring code, RuntimeError or ValueError for one that is no archive."""
    archive = torch._C.PyTorchFileReader(str(path))  # the reader that torch.export uses: both see the same records
    for name in archive.get_all_records():
        if "aotinductor" in name:
            raise BrokenContract("model.pt2 holds compiled code (AOTInductor), which is not run")
        if name.endswith(".json"):
            _check(json.loads(archive.get_record(name)))


def _check(value: Any) -> None:
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, dict):
            pending += item.values()
            if "expr_str" in item:
                _check_expression(item["expr_str"])
            if "target" in item and "inputs" in item:
                _check_operator(item["target"])
        elif isinstance(item, list):
            pending += item


def _check_operator(target: Any) -> None:
    if not isinstance(target, str) or not _OPERATOR.fullmatch(target):
        raise BrokenContract("model.pt2 calls what is no operator of torch")


def _check_expression(text: Any) -> None:
    try:
        nodes = list(ast.walk(ast.parse(text, mode="eval")))
    except (SyntaxError, ValueError, TypeError, RecursionError):
        nodes = []
    if not nodes or not all(map(_is_arithmetic, nodes)):
        raise BrokenContract("model.pt2 has a shape expression that is no arithmetic")


def _is_arithmetic(node: ast.AST) -> bool:
    """Whether sympy can evaluate this part of an expression without calling anything but arithmetic.

    Texts may come to be evaluated too, so they may be no more than a name or a number.
    """
    match node:
        case ast.Constant(value=str(text)):
            return _NAME_OR_NUMBER.fullmatch(text) is not None
        case ast.Constant(value=value):
            return isinstance(value, int | float)
        case ast.Name(id=name):
            return "__" not in name
        case ast.Call(func=function):
            return isinstance(function, ast.Name) and function.id in _FUNCTIONS
    return isinstance(node, _STRUCTURE)
