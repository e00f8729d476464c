"""A Hypothesis strategy that makes programs: the source text of a module with a function `program` and `CALLS` that call it.

What must hold: a program ends after few steps, and two runs of it do the same. It may raise, anywhere; that is part of what is compared.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tests.conformance.generator import prelude
from tests.conformance.generator.expressions import expression
from tests.conformance.generator.statements import body
from tests.conformance.generator.writer import KINDS, Writer

_ARGUMENTS: dict[str, tuple[str, ...]] = {
    "int": ("0", "1", "2", "3", "-1", "7", "2**63 - 1", "2**64", "-5"),
    "float": ("0.0", "1.5", "-0.0", "2.0", "float('nan')", "float('inf')", "-3.25"),
    "bool": ("True", "False"),
    "str": ("''", "'a'", "'ab'", "'é'", "'12'"),
    "list": ("[]", "[1]", "[3, 1, 2]", "[0, 0]", "[1, 2, 3, 4]"),
    "dict": ("{}", "{'a': 1}", "{'b': 2, 'a': 3}", "{'c': 0}"),
    "tuple": ("()", "(1, 2)", "(0,)", "(3, 2, 1)"),
    "set": ("set()", "{1, 2}", "{0}"),
    "tensor": ("torch.arange(6.0).reshape(2, 3)", "torch.ones(2, 3)", "torch.arange(3.0) - 1", "torch.tensor([[1, 2, 3], [4, 5, 6]])",
               "torch.zeros(2, 3, dtype=torch.float64)", "torch.arange(6.0).reshape(3, 2).t()", "torch.ones(3, requires_grad=True)",
               "torch.full((1, 3), 2.0, dtype=torch.float16)", "torch.tensor([True, False, True])", "torch.empty(0, 3)"),
    "obj": ("Point(1)", "Point(0, 2)", "Child(2)"),
}
_CHOICES = 1200
_FIRST = ("int", "tensor", "list", "float", "tensor", "str", "bool", "dict", "tuple", "obj", "set")
_ALIASES = ("{t}[0]", "{t}.t()", "{t}", "{t}[..., 1:]", "{t}.reshape(-1)", "{t}.detach()")


def _call(w: Writer, parameters: list[tuple[str, str]], star: str) -> str:
    """A function that makes the arguments of one call."""
    values, names = [], []
    for name, kind in parameters:
        made = str(w.pick(_ARGUMENTS[kind]))
        known = [n for n, k in names if k == kind]
        if kind == "tensor" and known and w.chance(30):
            made = str(w.pick(_ALIASES)).format(t=w.pick(known))
            made = f"{made} if {made.partition('[')[0]}.numel() else 0" if "[" in made else made
        elif kind in ("list", "dict", "obj") and known and w.chance(25):
            made = str(w.pick(known))
        values.append(f"({name} := {made})")
        names.append((name, kind))
    arguments = f"({', '.join(values)},)"
    if star == "*rest":
        arguments += f" + ({', '.join(str(w.pick(_ARGUMENTS['int'])) for _ in range(w.upto(2)))},)".replace("(,)", "()")
    keywords = "{}"
    if star in ("*, k=1", "**more") and w.chance(50):
        keywords = f"{{'{'k' if '=' in star else 'z'}': {w.pick(_ARGUMENTS['int'])}}}"
    return f"lambda: ({arguments}, {keywords})"


def _part(w: Writer) -> None:
    """Some statements; often what they raise is caught, so that not every program ends early."""
    if not w.chance(75):
        body(w, 3)
        return
    with w.block("try:"):
        body(w, 3)
    name = w.fresh("caught")
    with w.block("except Exception as error:"):
        w.line(w.pick(("print(type(error).__name__, error.args)", f"{name} = error", "pass")))


def write(choices: bytes) -> str:
    """The source of one program."""
    w = Writer(choices)
    kinds = ["int", "tensor", *(str(w.pick(_FIRST)) for _ in range(w.upto(3)))]
    parameters = [(f"p{n}", kind) for n, kind in enumerate(kinds)]
    star = str(w.pick(("", "", "", "*rest", "*, k=1", "**more")))
    for name, kind in parameters:
        w.declare(kind, name)
        w.own[-1].add(name)
    if star == "*rest":
        w.declare("tuple", "rest")
    elif star == "*, k=1":
        w.declare("int", "k")
    elif star == "**more":
        w.declare("dict", "more")
    w.budget = 1 + w.upto(7)
    for _ in range(1 + w.upto(1)):
        _part(w)
    results = [str(w.pick(w.variables(kind))) for kind in KINDS if w.variables(kind) and w.chance(70)]
    results.append(expression(w, str(w.pick(("int", "tensor", "float", "str", "list"))), 2))
    w.line(f"return {', '.join(results)},")
    calls = [_call(w, parameters, star) for _ in range(3)]
    text = "\n".join(w.lines)
    for kind in kinds:
        if kind == "obj":
            w.used.update(("Point", "Child"))
    names = [name for name in ("G1", "G4", "G5") if name in text]
    if names:
        w.lines.insert(0, f"    global {', '.join(names)}")
    items = [prelude.ITEMS[name].format(1 + w.upto(4), w.upto(5)).strip("\n") for name in prelude.needed(w.used)]
    head = f"def program({', '.join([name for name, _ in parameters] + [star] * bool(star))}):"
    return "\n".join([prelude.IMPORTS, *items, head, *w.lines, "", "CALLS = [", *(f"    {call}," for call in calls), "]", ""])


def programs() -> st.SearchStrategy[str]:
    """Programs. All choices are drawn at once: a draw for each would take longer than checking the program."""
    return st.binary(min_size=_CHOICES, max_size=_CHOICES).map(write)
