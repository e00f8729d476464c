"""Statements, written line by line. One table with weights; a row is a function of the writer."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.generator.expressions import condition, expression, key, small
from tests.conformance.generator.writer import KINDS, Writer

_CLASSES = ("ValueError", "KeyError", "(TypeError, ValueError)", "LookupError", "ZeroDivisionError", "Exception", "Err", "Sub", "RuntimeError",
            "ArithmeticError", "(Err, IndexError)", "AttributeError", "BaseException", "NameError", "AssertionError", "StopIteration")
_DATA = ("int", "int", "int", "float", "bool", "str", "list", "dict", "tuple", "set", "tensor", "tensor", "tensor", "obj", "func")


def body(w: Writer, most: int = 3) -> None:
    """Some statements."""
    for _ in range(1 + w.upto(most - 1)):
        statement(w)


def statement(w: Writer) -> None:
    """One statement; once the budget is spent only a simple one."""
    w.budget -= 1
    deep = w.budget > 0 and w.indent < 6
    rule = w.pick(_COMPOUND) if deep and w.chance(45) else w.pick(_SIMPLE)
    rule(w)


# --------------------------------------------------------------------------------------------------------------- simple
def _assign(w: Writer) -> None:
    kind = str(w.pick(_DATA))
    value = expression(w, kind, 3)
    w.line(f"{w.declare(kind, w.target(kind))} = {value}")


def _chain(w: Writer) -> None:
    kind = str(w.pick(_DATA))
    value = expression(w, kind)
    names = [w.target(kind), w.fresh(kind[0])]
    w.line(" = ".join([*names, value]))
    for name in names:
        w.declare(kind, name)


def _own(w: Writer, kind: str) -> str:
    """A variable that may be assigned to; made if there is none."""
    own = [name for name in w.variables(kind) if name in w.own[-1]]
    if own:
        return str(w.pick(own))
    value = expression(w, kind, 1)
    name = w.fresh(kind[0])
    w.own[-1].add(name)
    w.line(f"{w.declare(kind, name)} = {value}")
    return name


def _known(w: Writer, kind: str) -> str:
    """A variable, whosesoever; made if there is none."""
    known = w.variables(kind)
    return str(w.pick(known)) if known else _own(w, kind)


def _augmented(w: Writer) -> None:
    kind = str(w.pick(("int", "int", "float", "str", "list", "tensor", "tensor", "set", "obj", "dict", "tuple")))
    name = _own(w, kind)
    sign = w.pick({"int": ("+=", "-=", "//=", "%=", "&=", "|=", "^=", ">>="), "float": ("+=", "-=", "*=", "/="), "str": ("+=",), "list": ("+=",),
                   "tensor": ("+=", "-=", "*=", "/="), "set": ("|=", "-=", "&="), "obj": ("+=",), "dict": ("|=",), "tuple": ("+=",)}[kind])
    limited = {"str": "[:5]", "list": "[:2]", "tuple": "[:2]"}.get(kind, "")
    value = expression(w, kind if kind not in ("tensor", "obj") or w.chance(40) else "int", 2)
    w.line(f"{name} {sign} {value}{limited}")


def _unpack(w: Writer) -> None:
    a, b = _own(w, "int"), _own(w, "int")
    form = w.pick(("{a}, {b} = {b}, {a}", "{a}, {b} = {tuple}", "{a}, *{s} = {list}", "*{s}, {a} = {tuple}", "({a}, {b}), {s} = {tuple}, {list}",
                   "{a}, ({b}, *{s}) = {int}, {list}", "{a}, {b} = {list}", "[{a}, *{s}, {b}] = {list}", "{a}, {b} = {dict}.values()"))
    values = {kind: expression(w, kind, 2) for kind in ("tuple", "list", "dict", "int") if f"{{{kind}}}" in form}
    name = w.fresh("l")
    w.line(form.format(a=a, b=b, s=name, **values))
    if "{s}" in form:
        w.own[-1].add(name)
        w.declare("list", name)


_LISTS = ("{v}.append({int})", "{v}.insert({small}, {int})", "{v}.extend({list}[:3])", "{v}.sort()", "{v}.reverse()", "{v}[{small}] = {int}", "{v}[{small}:] = {list}[:3]",
          "del {v}[{small}]", "{v}.remove({int})", "{v}.clear()", "{v}.pop()", "{v}[{small}] += {int}", "del {v}[{small}:]", "{v}[::2] = {list}", "{v}[1:1] = ({int}, {int})")
_DICTS = ("{v}[{key}] = {int}", "{v}.update({dict})", "del {v}[{key}]", "{v}.pop({key}, None)", "{v}[{key}] += {int}", "{v}.setdefault({key}, {int})", "{v}.clear()",
          "{v}.update(c={int})", "{v}.popitem()", "{v}.pop({key})")
_SETS = ("{v}.add({int})", "{v}.discard({int})", "{v}.remove({int})", "{v}.update({list})", "{v}.clear()")
_OBJECTS = ("{v}.a = {int}", "{v}.total = {int}", "{v}[{small}] = {int}", "del {v}[{small}]", "{v}.other = {int}", "{v}.extra = {int}", "{v}.a += {int}", "{v}.b, {v}.a = {tuple}",
            "del {v}.b", "{v}.method({int})", "{v}.__dict__['z'] = {int}", "setattr({v}, 'w', {int})", "{v}.total += {int}", "delattr({v}, 'other')", "type({v}).count += {small}")
_TENSORS = ("{v}.add_({small})", "{v}.mul_({t})", "{v}[0] = {float}", "{v}[..., 0] = {t}[..., 0]", "{v}[1:] += {int}", "{v}[{v} > 0] = {int}", "{v}.zero_()", "{v}[0].add_({t})",
            "{v}.copy_({t})", "{v}.t_()", "{v}.clamp_(min={small})", "{v}.view(-1)[0] = {int}", "{v}[..., -1] *= {int}", "{v}.requires_grad_()", "{v}.neg_()", "{v}[None] -= {t}",
            "{v}.fill_({float})", "{v}[{small}] = {t}", "{v}.unsqueeze_(0)", "{v}.squeeze_()", "{v}.detach_()", "{v}.sub_({t}, alpha=2)", "{v}.sum().backward()", "{v}.grad = None",
            "torch.add({t}, 1, out={v})", "{v}.relu_()", "{v}.exp_()", "({v} * 2).sum().backward()", "{v}.data = {v}.data + 1", "{v}.resize_(2)", "{v}.transpose_(0, -1)", "{v}.masked_fill_({v} < 1, 2)")


def _mutation(w: Writer) -> None:
    kind = str(w.pick(("list", "list", "dict", "set", "obj", "obj", "tensor", "tensor", "tensor")))
    form = w.pick({"list": _LISTS, "dict": _DICTS, "set": _SETS, "obj": _OBJECTS, "tensor": _TENSORS}[kind])
    name = _known(w, kind)
    holes = {k: expression(w, k, 2) for k in ("int", "list", "dict", "tuple", "float") if f"{{{k}}}" in form}
    if "{t}" in form:
        holes["t"] = expression(w, "tensor", 1)
    if "{small}" in form:
        holes["small"] = small(w)
    if "{key}" in form:
        holes["key"] = key(w)
    w.line(form.format(v=name, **holes))


def _delete(w: Writer) -> None:
    kind = str(w.pick(("int", "list", "str", "tensor")))
    name = _own(w, kind)
    w.line(f"del {name}")
    if w.chance(75):
        for scope in w.scopes:
            if name in scope[kind]:
                scope[kind].remove(name)


def _print(w: Writer) -> None:
    kind = str(w.pick(("int", "str", "list", "float", "dict", "tuple", "bool")))
    more = f", {expression(w, 'int', 1)}, sep='~'" if w.chance(25) else ""
    w.line(f"print({expression(w, kind)}{more})")


def _raise(w: Writer) -> None:
    if not w.chance(35):
        return _assert(w) if w.chance(30) else _assign(w)
    what = w.pick(("ValueError({int})", "KeyError({str})", "Err({int})", "Sub({int}, {str})", "ValueError", "LookupError()", "ZeroDivisionError('own')", "Err", "AssertionError({list})", "{str}"))
    value = what.format(**{k: expression(w, k, 1) for k in ("int", "str", "list") if f"{{{k}}}" in what})
    for name in ("Err", "Sub"):
        if name in what:
            w.need(name)
    guard = f"if {condition(w)}: " if w.chance(60) else ""
    cause = w.pick(("", "", "", " from None", " from KeyError('cause')")) if not w.handlers else w.pick(("", " from error", " from None"))
    w.line(f"{guard}raise {value}{cause}")


def _assert(w: Writer) -> None:
    message = f", {expression(w, 'str', 1)}" if w.chance(50) else ""
    w.line(f"assert {condition(w)}{message}")


def _global(w: Writer) -> None:
    w.line(w.pick(("{G1} = {int}", "{G2}.append({small}) if len(G2) < 6 else G2.clear()", "{G3}[{key}] = {int}", "{G2}[0] = {int}", "{G1} += {small}", "{bump}({small})",
                   "{Point}.count += 1", "{G4} = {str}", "{G5}.add_({small})", "{G5} = {t}", "{G1} = {bool} + {G1}")).format(
        **{n: w.need(n) for n in ("G1", "G2", "G3", "G4", "G5", "bump", "Point")}, int=expression(w, "int", 1), small=small(w), key=key(w), str=expression(w, "str", 1),
        t=expression(w, "tensor", 1), bool=expression(w, "bool", 1)))


def _jump(w: Writer) -> None:
    if w.loops and w.chance(70):
        w.line(f"if {condition(w)}: {w.pick(('break', 'continue'))}")
    elif w.chance(35):
        kind = str(w.pick(_DATA[:11]))
        guard = f"if {condition(w)}: " if w.chance(85) else ""
        w.line(f"{guard}return {expression(w, kind, 1)}")
    else:
        _assign(w)


def _walrus(w: Writer) -> None:
    value = expression(w, "int")
    name = w.target("int")
    w.line(f"({w.declare('int', name)} := {value})")


def _expression(w: Writer) -> None:
    w.line(expression(w, str(w.pick(_DATA)), 3))


# -------------------------------------------------------------------------------------------------------------- compound
def _if(w: Writer) -> None:
    with w.block(f"if {condition(w, 2)}:"):
        body(w)
    while w.chance(25):
        with w.block(f"elif {condition(w, 2)}:"):
            body(w)
    if w.chance(45):
        with w.block("else:"):
            body(w)


def _loop_body(w: Writer, first: str = "") -> None:
    w.loops += 1
    if first:
        w.line(first)
    body(w)
    w.loops -= 1


def _else_of_loop(w: Writer) -> None:
    if w.chance(25):
        with w.block("else:"):
            body(w, 2)


_OVER = (("{i}", "range({small})"), ("{i}", "range(3)"), ("{i}", "{list}[:4]"), ("{i}, {j}", "enumerate({list}[:3])"), ("{i}, {j}", "zip({list}[:3], {tuple})"), ("{i}", "{tuple}[:3]"),
         ("{i}", "reversed({list}[-3:])"), ("{i}", "{v}"), ("{i}", "sorted({set})[:3]"), ("{i}", "range({int} & 3, 6, 2)"), ("{i}", "map(abs, {list}[:3])"), ("{i}", "counting({small})"),
         ("{i}", "(z * 2 for z in {list}[:3] if z)"), ("{i}", "{dict}.values()"), ("{i}", "filter(None, {list}[:3])"), ("{i}", "{o}"), ("{i}, *{j}", "[({int}, 1, 2), (3, {int})]"), ("{i}", "iter({list}[:2])"))


def _for(w: Writer) -> None:
    shape, over = w.pick(_OVER)
    i, j = w.target("int"), w.fresh("i")
    holes = {k: expression(w, k, 1) for k in ("int", "list", "tuple", "set", "dict") if f"{{{k}}}" in over}
    if "{small}" in over:
        holes["small"] = small(w)
    if "{v}" in over:
        holes["v"] = _known(w, "list")
    if "{o}" in over:
        holes["o"] = _known(w, "obj")
    if "counting" in over:
        w.need("counting")
    with w.block(f"for {shape.format(i=i, j=j)} in {over.format(**holes)}:"):
        w.declare("int", i)
        if "{j}" in shape and "*" not in shape:
            w.declare("int", j)
        _loop_body(w, f"if len({holes['v']}) > 5: break" if "v" in holes else "")
    _else_of_loop(w)


def _for_other(w: Writer) -> None:
    """Over what does not hold ints."""
    form = w.pick(("str", "items", "rows", "keys", "chunks", "tensors", "growing"))
    if form == "str":
        name = w.fresh("s")
        with w.block(f"for {name} in {expression(w, 'str', 1)}[:3]:"):
            w.declare("str", name)
            _loop_body(w)
    elif form in ("items", "keys", "growing"):
        k, v = w.fresh("s"), w.fresh("i")
        name = _known(w, "dict")
        head = f"for {k}, {v} in {name}.items():" if form == "items" else f"for {k} in list({name}):" if form == "keys" else f"for {k} in {name}:"
        with w.block(head):
            w.declare("str", k)
            if form == "items":
                w.declare("int", v)
            if form == "growing" and w.chance(40):
                w.line(f"{name}[{k} + 'x'] = 1")
            _loop_body(w)
    else:
        t = w.fresh("t")
        source = {"rows": "{}", "chunks": "{}.chunk(2)", "tensors": "({0}, {0} + 1)"}[form].format(expression(w, "tensor", 1))
        with w.block(f"for {t} in {source}:"):
            w.declare("tensor", t)
            _loop_body(w)
    _else_of_loop(w)


def _while(w: Writer) -> None:
    n = w.fresh("n")
    w.line(f"{n} = 0")
    with w.block(f"while {n} < {1 + w.upto(2)} and {condition(w, 2)}:" if w.chance(75) else "while True:"):
        w.declare("int", n)
        w.line(f"{n} += 1")
        _loop_body(w, f"if {n} > 3: break")
    _else_of_loop(w)


def _try(w: Writer) -> None:
    with w.block("try:"):
        body(w)
        if w.chance(50):
            _raise(w)
    handlers = w.upto(2)
    for _ in range(handlers):
        classes = str(w.pick(_CLASSES))
        for name in ("Err", "Sub"):
            if name in classes:
                w.need(name)
        named = w.chance(60)
        with w.block(f"except {classes}{' as error' if named else ''}:"):
            w.handlers += named
            if named and w.chance(40):
                w.line(w.pick(("print(type(error).__name__, error.args)", "print(error.__context__ is None, error)", "error.add_note('n')", "kept = error", "print(len(error.args))")))
            body(w, 2)
            if w.chance(15):
                w.line("raise")
            w.handlers -= named
    if handlers and w.chance(30):
        with w.block("else:"):
            body(w, 2)
    if not handlers or w.chance(35):
        with w.block("finally:"):
            body(w, 2)


def _with(w: Writer) -> None:
    log = _known(w, "list")
    name = w.fresh("m")
    head = w.pick(("{Manager}({log}) as {name}", "{Manager}({log}, (ValueError, Err))", "{manager}({log}) as {name}", "{manager}({log}, False)", "contextlib.suppress(KeyError, {Err})",
                   "{Manager}({log}), {manager}({log}) as {name}", "contextlib.nullcontext({log}) as {name}", "torch.no_grad()", "torch.no_grad()", "torch.enable_grad()", "torch.inference_mode()",
                   "contextlib.ExitStack() as {name}", "torch.set_grad_enabled(len({log}) > 1)"))
    for item in ("Manager", "manager", "Err"):
        if f"{{{item}}}" in head:
            w.need(item)
    if "Err)" in head:
        w.need("Err")
    with w.block(f"with {head.format(log=log, name=name, Manager='Manager', manager='manager', Err='Err')}:"):
        if "manager}({log}) as" in head:
            w.declare("int", name)
        body(w)
        if w.chance(30):
            _raise(w)


_PATTERNS = ("0", "1 | 2", "-1", "'a'", "int()", "str()", "[x, y]", "[x, *y]", "(x, 0)", "{{'a': x}}", "{{'b': int() as x, **y}}", "Point(a=x)", "None", "True", "bool()", "float(x)", "list() as x",
             "[1, [x]]", "x if x == 1", "torch.Tensor() as x", "[]", "{{}}", "Point(a=0, b=x)", "2.0", "(int(x), y) if x", "dict()", "G2")


def _match(w: Writer) -> None:
    kind = str(w.pick(("int", "list", "dict", "tuple", "obj", "str", "float", "tensor")))
    w.need("Point")
    with w.block(f"match {expression(w, kind, 2)}:"):
        for _ in range(1 + w.upto(3)):
            pattern = str(w.pick(_PATTERNS[:-1])).replace("{{", "{").replace("}}", "}")
            x, y = w.fresh("x"), w.fresh("y")
            text = pattern.replace("x", x).replace("y", y) if not pattern.startswith("torch") else pattern.replace("as x", f"as {x}")
            with w.block(f"case {text}:"):
                body(w, 2)
        if w.chance(60):
            with w.block("case _:"):
                body(w, 2)


def _function(w: Writer) -> None:
    """A local function (a closure, maybe with nonlocal), called on the spot and afterwards."""
    name = w.fresh("f")
    a, b = w.fresh("i"), w.fresh("i")
    head = w.pick(("{a}", "{a}, {b}=2", "{a}, *{b}", "{a}, *, {b}=3", "{a}, /, {b}=1, **more", "{a}, {b}={d}"))
    default = expression(w, "int", 1)
    outer = [n for n in w.variables("int") if n in w.own[-1]]
    rebinds = str(w.pick(outer)) if outer and w.chance(40) else ""
    generator = w.chance(12)
    loops, w.loops, w.functions = w.loops, 0, w.functions + 1
    with w.block(f"def {name}({head.format(a=a, b=b, d=default)}):"):
        w.own.append({a})
        w.declare("int", a)
        if f"*{b}" in head.format(a=a, b=b, d=""):
            w.declare("tuple", b)
        else:
            w.declare("int", b)
        if rebinds:
            w.line(f"nonlocal {rebinds}")
            w.own[-1].add(rebinds)
            w.line(f"{rebinds} = {expression(w, 'int', 1)}")
        body(w)
        w.line(f"{'yield' if generator else 'return'} {expression(w, 'int', 2)}")
        w.own.pop()
    w.loops, w.functions = loops, w.functions - 1
    if not generator:
        w.declare("func", name)
    value = expression(w, "int", 1)
    result = w.target("int")
    call = w.pick(("{f}({v})", "{f}({v})", "{f}({v}, 4)", "{f}(*[{v}])", "{f}({v}, **{{'{b}': 5}})")).format(f=name, v=value, b=b)
    w.line(f"{w.declare('int', result)} = {f'sum({call})' if generator else call}")


def _class(w: Writer) -> None:
    name = w.fresh("K")
    base = w.pick(("", "(Point)", "(list)", "(dict)"))
    w.need("Point")
    with w.block(f"class {name}{base}:"):
        w.line(f"size = {expression(w, 'int', 1)}")
        with w.block("def twice(self):"):
            w.line("return self.size * 2")
    result = w.fresh("i")
    w.own[-1].add(result)
    w.line(f"{result} = {name}({'1' if base == '(Point)' else ''}).twice()")
    w.declare("int", result)


_SIMPLE: tuple[Callable[[Writer], None], ...] = (
    *(_assign,) * 8, _chain, *(_augmented,) * 5, *(_unpack,) * 2, *(_mutation,) * 9, _delete, *(_print,) * 2, *(_raise,) * 2, _assert, *(_global,) * 2, *(_jump,) * 3, _walrus, *(_expression,) * 2)
_COMPOUND: tuple[Callable[[Writer], None], ...] = (
    *(_if,) * 6, *(_for,) * 5, *(_for_other,) * 2, *(_while,) * 2, *(_try,) * 5, *(_with,) * 3, *(_match,) * 2, *(_function,) * 3, _class)

__all__ = ["KINDS", "body", "statement"]
