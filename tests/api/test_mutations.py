"""What a trace can depend on, changed behind its back: the very next call sees it, also where another thread has changed it; what
does not matter costs a look, and no recording."""

from __future__ import annotations

import builtins
import functools
import sys
import threading
import types
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import trident

X = torch.arange(4.0)


@dataclass
class Case:
    """A function of X; a change that matters, and one of the same owner that does not."""

    function: Callable[[torch.Tensor], Any]
    change: Callable[[], object]
    harmless: Callable[[], object]


KINDS: dict[str, Callable[[], Case]] = {}
OF_A_THREAD = ("read: context variable",)


def kind(make: Callable[[], Case]) -> Callable[[], Case]:
    KINDS[make.__name__] = make
    return make


def outcome(function: Callable[..., Any]) -> str:
    try:
        result = function(X)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if isinstance(result, torch.Tensor):
        return f"{result.dtype} {result.requires_grad} {type(result.grad_fn).__name__} {result.tolist()}"
    return repr(result)


@pytest.mark.parametrize("by", ["this thread", "another thread"])
@pytest.mark.parametrize("name", KINDS_NAMES := [])
def test_changes_are_seen(name: str, by: str) -> None:
    case = KINDS[name]()
    jitted = trident.jit(case.function)
    before = outcome(case.function)
    for _ in range(3):
        assert outcome(jitted) == before

    def told() -> tuple[int, int]:
        explained = trident.explain(jitted)
        return explained.hits, explained.misses

    if by != "this thread" and name in OF_A_THREAD:
        pytest.skip("a context variable has a value in each thread")

    def do(what: Callable[[], object]) -> None:
        if by == "this thread":
            what()
            return
        thread = threading.Thread(target=what)
        thread.start()
        thread.join()

    hits, misses = told()
    assert hits >= 1 or misses, trident.explain(jitted)
    for _ in range(3):
        do(case.harmless)
        assert outcome(jitted) == before
    assert told() == (hits + 3, misses), trident.explain(jitted)
    do(case.change)
    after = outcome(case.function)
    assert after != before
    for _ in range(3):
        assert outcome(jitted) == after


# ------------------------------------------------------------------------------------------------------------------- modules


class Net(nn.Module):
    """A fresh class for every case comes from `net`."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.999), nn.Tanh())
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("offset", torch.ones(4))
        self.scale = 2.0
        self.sizes = [1, 2]
        self.table = {"a": 1.0, "b": 2.0}
        self.counter = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = self.inner(x) * self.weight + self.offset
        for size in self.sizes:
            total = total + size
        return total * self.scale * self.table["a"]


def net(change: Callable[[Any], object], harmless: Callable[[Any], object] | None = None) -> Case:
    cls: Any = type("Fresh", (Net,), {"forward": types.FunctionType(Net.forward.__code__, Net.forward.__globals__, "forward")})
    torch.manual_seed(0)
    made = cls().eval()

    def count() -> None:
        made.counter += 1
        made.inner.unrelated = made.inner[0].unrelated = made.counter

    return Case(lambda x: made(x), lambda: change(made), (lambda: harmless(made)) if harmless else count)


def _swap_dicts(module: Any) -> None:
    other = type(module)()
    other.eval()
    module.__dict__ = other.__dict__


class Doubled(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * 2


def _hook_and_remove(module: Any) -> None:
    module.register_forward_hook(lambda *_: None).remove()
    module.inner[0].register_forward_pre_hook(lambda *_: None).remove()


MODULE_CHANGES: dict[str, tuple[Any, ...]] = {
    "parameter": (lambda m: setattr(m, "weight", nn.Parameter(torch.full((4,), 3.0))),),
    "parameter in its dict": (lambda m: m._parameters.__setitem__("weight", nn.Parameter(torch.full((4,), 3.0))),),
    "parameter of a submodule": (lambda m: setattr(m.inner[0], "weight", nn.Parameter(torch.ones(4, 4))),),
    "parameter set to None": (lambda m: setattr(m.inner[0], "bias", None),),
    "parameter's data": (lambda m: m.weight.data.fill_(7.0),),
    "parameter's dtype": (lambda m: m.double(),),
    "parameters without grad": (lambda m: m.requires_grad_(False),),
    "buffer": (lambda m: setattr(m, "offset", torch.zeros(4)),),
    "attribute": (lambda m: setattr(m, "scale", 3.0),),
    "attribute of another type": (lambda m: setattr(m, "scale", 3),),
    "attribute deleted": (lambda m: delattr(m, "scale"),),
    "attribute replaced by one of the class": (lambda m: (setattr(type(m), "scale", 5.0), delattr(m, "scale")),),
    "list item": (lambda m: m.sizes.__setitem__(0, 9),),
    "list grown": (lambda m: m.sizes.append(9),),
    "dict item": (lambda m: m.table.__setitem__("a", 9.0), lambda m: m.table.__setitem__("b", 9.0)),
    "dict replaced": (lambda m: setattr(m, "table", {"a": 5.0}),),
    "training": (lambda m: m.train(),),
    "training of a leaf": (lambda m: m.inner[1].train(),),
    "submodule": (lambda m: m.inner.__setitem__(2, nn.ReLU()),),
    "submodule added": (lambda m: m.inner.append(nn.ReLU()),),
    "submodule deleted": (lambda m: m.inner.__delitem__(2),),
    "submodules' dict": (lambda m: setattr(m.inner, "_modules", OrderedDict(a=nn.ReLU())),),
    "class": (lambda m: setattr(m.inner[0], "__class__", Doubled),),
    "instance dict": (_swap_dicts,),
    "forward of the class": (lambda m: setattr(type(m), "forward", lambda self, x: x), lambda m: setattr(type(m), "backward", 1)),
    "forward of the instance": (lambda m: setattr(m.inner[2], "forward", torch.neg),),
    "method added below": (lambda m: setattr(type(m), "__call__", lambda self, x: x + 100),),
    "class gets a property": (lambda m: setattr(type(m), "scale", property(lambda self: 11.0)),),
    "class gets __getattribute__": (lambda m: setattr(
        type(m), "__getattribute__", lambda self, name: 7.0 if name == "scale" else object.__getattribute__(self, name)),),
    "forward hook": (lambda m: m.register_forward_hook(lambda module, args, out: out + 1), _hook_and_remove),
    "forward hook of a leaf": (lambda m: m.inner[2].register_forward_hook(lambda module, args, out: out + 1), _hook_and_remove),
    "forward pre-hook": (lambda m: m.inner.register_forward_pre_hook(lambda module, args: (args[0] + 1,)), _hook_and_remove),
    "backward hook": (lambda m: m.register_full_backward_hook(lambda *_: None), _hook_and_remove),
}


@pytest.mark.parametrize("name", ["every module"])
def test_hooks_of_all_modules(name: str) -> None:
    case = net(lambda m: None)
    jitted = trident.jit(case.function)
    for _ in range(3):
        before = outcome(jitted)
    for register in (nn.modules.module.register_module_forward_hook, nn.modules.module.register_module_forward_pre_hook):
        seen: list[object] = []
        handle = register(lambda *args, seen=seen: seen.append(type(args[0])))  # type: ignore[operator]
        try:
            assert outcome(jitted) == before and len(seen) == 5
        finally:
            handle.remove()
        assert outcome(jitted) == before and len(seen) == 5


for _name, _changes in MODULE_CHANGES.items():
    KINDS[f"module: {_name}"] = functools.partial(net, *_changes)


# ----------------------------------------------------------------------------------------------------- globals, closures, functions


def program(text: str, **names: object) -> Any:
    """A module of its own that the text is the body of."""
    module: Any = types.ModuleType("program")
    module.__dict__.update(names, torch=torch)
    exec(text, module.__dict__)
    return module


@kind
def global_rebound() -> Case:
    m = program("G = 2.0\nunrelated = 0\ndef f(x): return x * G")
    return Case(m.f, lambda: setattr(m, "G", 3.0), lambda: setattr(m, "unrelated", m.unrelated + 1))


@kind
def global_tensor_rebound() -> Case:
    m = program("G = torch.ones(4)\ndef f(x): return x * G")
    return Case(m.f, lambda: setattr(m, "G", torch.zeros(4)), lambda: setattr(m, "unrelated", 1))


@kind
def global_deleted() -> Case:
    m = program("G = 2.0\ndef f(x): return x * G")
    return Case(m.f, lambda: delattr(m, "G"), lambda: setattr(m, "unrelated", 1))


@kind
def builtin_shadowed() -> Case:
    m = program("def f(x): return x * max(2, x.dim())")
    return Case(m.f, lambda: setattr(m, "max", min), lambda: setattr(m, "unrelated", 1))


@kind
def builtin_added() -> Case:
    m = program("def f(x): return x * (3 if 'EXTRA' in vars(B) else 2)", B=types.SimpleNamespace(EXTRAS=0))
    return Case(m.f, lambda: setattr(m.B, "EXTRA", 1), lambda: setattr(m, "unrelated", 1))


@kind
def global_of_another_module() -> Case:
    other, m = program("G = 2.0"), program("def f(x): return x * other.G")
    m.other = other
    return Case(m.f, lambda: setattr(other, "G", 3.0), lambda: setattr(other, "unrelated", 1))


@kind
def called_function_replaced() -> Case:
    m = program("def g(x): return x + 1\ndef f(x): return g(x) * 2")
    return Case(m.f, lambda: setattr(m, "g", torch.neg), lambda: setattr(m, "h", torch.neg))


@kind
def called_functions_code() -> Case:
    m = program("def g(x): return x + 1\ndef f(x): return g(x) * 2")
    return Case(m.f, lambda: setattr(m.g, "__code__", (lambda x: x - 1).__code__), lambda: setattr(m.g, "unrelated", 1))


@kind
def called_functions_default() -> Case:
    m = program("def g(x, n=2): return x * n\ndef f(x): return g(x)")
    return Case(m.f, lambda: setattr(m.g, "__defaults__", (3,)), lambda: setattr(m.g, "__doc__", "text"))


@kind
def called_functions_keyword_default() -> Case:
    m = program("def g(x, *, n=2): return x * n\ndef f(x): return g(x)")
    return Case(m.f, lambda: m.g.__kwdefaults__.__setitem__("n", 3), lambda: setattr(m.g, "unrelated", 1))


@kind
def called_functions_keyword_defaults_replaced() -> Case:
    m = program("def g(x, *, n=2): return x * n\ndef f(x): return g(x)")
    return Case(m.f, lambda: setattr(m.g, "__kwdefaults__", {"n": 3}), lambda: setattr(m.g, "unrelated", 1))


@kind
def own_code() -> Case:
    m = program("def f(x): return x * 2")
    return Case(m.f, lambda: setattr(m.f, "__code__", (lambda x: x - 1).__code__), lambda: setattr(m.f, "unrelated", 1))


@kind
def closure_cell() -> Case:
    m = program("def make():\n  n = 2.0\n  def f(x): return x * n\n  def put(value):\n    nonlocal n\n    n = value\n  return f, put")
    f, put = m.make()
    return Case(f, lambda: put(3.0), lambda: setattr(m, "unrelated", 1))


@kind
def closure_cell_of_a_callee() -> Case:
    m = program("def make():\n  n = 2.0\n  def f(x): return x * n\n  def put(value):\n    nonlocal n\n    n = value\n  return f, put\n"
                "def f(x): return g(x) + 1")
    m.g, put = m.make()
    return Case(m.f, lambda: put("text"), lambda: setattr(m, "unrelated", 1))


CLASSES = """
class Base:
    __slots__ = ("__dict__", "slot")
    factor = 2.0
    def method(self, x): return x * self.factor + self.slot
    @staticmethod
    def static(x): return x + 1
    @classmethod
    def of_class(cls, x): return x * cls.factor
    @property
    def prop(self): return 4.0
    def __len__(self): return 3
class First(Base): pass
class Second(Base):
    def method(self, x): return x + 7
class Derived(First): pass
class Other(Base):
    def method(self, x): return x - 1
held = Derived()
held.slot = 1.0
def f(x): return held.of_class(held.static(held.method(x))) * held.prop * len(held)
"""

CLASS_CHANGES: dict[str, Callable[[Any], object]] = {
    "method": lambda m: setattr(m.Base, "method", lambda self, x: x),
    "method in between": lambda m: setattr(m.Derived, "method", lambda self, x: x),
    "method of the instance": lambda m: setattr(m.held, "method", torch.neg),
    "static method": lambda m: setattr(m.Base, "static", staticmethod(torch.neg)),
    "class method": lambda m: setattr(m.Base, "of_class", classmethod(lambda cls, x: x)),
    "property": lambda m: setattr(m.Base, "prop", property(lambda self: 5.0)),
    "special method": lambda m: setattr(m.Derived, "__len__", lambda self: 7),
    "attribute of the class": lambda m: setattr(m.Base, "factor", 3.0),
    "attribute of the instance": lambda m: setattr(m.held, "factor", 3.0),
    "slot": lambda m: setattr(m.held, "slot", 5.0),
    "slot emptied": lambda m: delattr(m.held, "slot"),
    "__class__": lambda m: setattr(m.held, "__class__", m.Other),
    "__bases__": lambda m: setattr(m.Derived, "__bases__", (m.Second,)),
    "__dict__": lambda m: setattr(m.held, "__dict__", {"factor": 9.0}),
    "__getattribute__": lambda m: setattr(m.Base, "__getattribute__", lambda self, name: object.__getattribute__(
        self, "static" if name == "of_class" else name)),
    "global": lambda m: setattr(m, "held", m.Other.__new__(m.Other)),
}


def _of_class(change: Callable[[Any], object]) -> Case:
    m = program(CLASSES)

    def harmless() -> None:
        m.held.counter = getattr(m.held, "counter", 0) + 1
        m.Base.unrelated = m.held.counter
        m.Other.method = lambda self, x: x

    return Case(m.f, lambda: change(m), harmless)


for _name, _change in CLASS_CHANGES.items():
    KINDS[f"class: {_name}"] = functools.partial(_of_class, _change)


# ---------------------------------------------------------------------------------------------------------- containers and others


# Setup; what the function computes from x; a change that matters; one that does not.
READS: dict[str, tuple[str, str, str, str]] = {
    "list item": ("G = [2, 3]", "x * G[1]", "G[1] = 4", "G[1] = G[1]"),
    "last list item": ("G = [2, 3]", "x * G[-1]", "G.append(4)", "G[1] = G[1]"),
    "length of a list": ("G = [2, 3]", "x * len(G)", "G.append(4)", "G[1] = G[1]"),
    "list is empty": ("G = []", "x * 2 if G else x", "G.append(4)", "G.append(1); G.clear()"),
    "membership in a list": ("G = [2, 3]", "x * (2 in G)", "G[0] = 1", "G[1] = G[1]"),
    "sum of a list": ("G = [2, 3]", "x * sum(G)", "G[0] = 1", "G[1] = G[1]"),
    "list unpacked": ("G = [2, 3]", "x * (lambda a, b: a - b)(*G)", "G.reverse()", "G[1] = G[1]"),
    "list compared": ("G = [2, 3]", "x * (G == [2, 3])", "G.reverse()", "G[1] = G[1]"),
    "slice of a list": ("G = [2, 3]", "x * len(G[1:])", "G.append(1)", "G[1] = G[1]"),
    "list of a list": ("G = [[2], 3]", "x * G[0][0]", "G[0][0] = 5", "G[1] = G[1]"),
    "list of a tuple": ("G = ([2], 3)", "x * G[0][0]", "G[0][0] = 5", "G[0][0] = 2"),
    "dict item": ("G = {'a': 2}", "x * G['a']", "G['a'] = 3", "G['b'] = 3"),
    "dict item by int": ("G = {1: 2}", "x * G[1]", "G[1] = 3", "G[1] = 2"),
    "dict item by tuple": ("G = {(1, 2): 2}", "x * G[1, 2]", "G[1, 2] = 3", "G[1, 2] = 2"),
    "dict get": ("G = {'a': 2}", "x * G.get('b', 5)", "G['b'] = 3", "G['a'] = 3"),
    "membership in a dict": ("G = {'a': 2}", "x * ('b' in G)", "G['b'] = 3", "G['a'] = 3"),
    "length of a dict": ("G = {'a': 2}", "x * len(G)", "G['b'] = 3", "G['a'] = 2"),
    "dict is empty": ("G = {}", "x * 2 if G else x", "G['a'] = 1", "G['a'] = 1; G.clear()"),
    "dict is not empty": ("G = {'a': 2}", "x * 2 if G else x", "G.clear()", "G['b'] = 3"),
    "items of a dict": ("G = {'a': 2}", "x * [v for k, v in G.items()][-1]", "G['b'] = 3", "G['b'] = 3; del G['b']"),
    "order of a dict": ("G = {'a': 2, 'b': 3}", "x * list(G.values())[0]", "G['a'] = G.pop('a')", "G['a'] = 2"),
    "dict unpacked": ("G = {'a': 2, 'b': 3}", "x * (lambda **k: k['a'])(**G)", "G['a'] = 7", "G['b'] = 3"),
    "dict copied": ("G = {'a': 2}", "x * {**G}['a']", "G['a'] = 7", "G['a'] = 2"),
    "read-only view": ("D = {'a': 2}; G = types.MappingProxyType(D)", "x * G['a']", "D['a'] = 7", "D['b'] = 2"),
    "ordered dict": ("G = collections.OrderedDict(a=2)", "x * G['a']", "G['a'] = 3", "G['b'] = 3"),
    "order of an ordered dict": ("G = collections.OrderedDict(a=2, b=3)", "x * list(G.values())[0]", "G.move_to_end('a')", "G['a'] = 2"),
    "default dict": ("G = collections.defaultdict(int, a=2)", "x * G['a']", "G['a'] = 3", "G['b'] = 3"),
    "counter": ("G = collections.Counter(a=2)", "x * G['a']", "G['a'] = 3", "G['b'] = 3"),
    "chain map": ("G = collections.ChainMap({}, {'a': 2})", "x * G['a']", "G['a'] = 3", "G['b'] = 3"),
    "membership in a set": ("G = {2, 3}", "x * (4 in G)", "G.add(4)", "G.add(5)"),
    "length of a set": ("G = {2, 3}", "x * len(G)", "G.add(4)", "G.add(2)"),
    "set is empty": ("G = set()", "x * 2 if G else x", "G.add(4)", "G.add(1); G.clear()"),
    "sum of a set": ("G = {2, 3}", "x * sum(G)", "G.add(4)", "G.add(2)"),
    "deque": ("G = collections.deque([2])", "x * G[0]", "G[0] = 3", "G.append(3)"),
    "bytearray": ("G = bytearray(b'ab')", "x * G[0]", "G[0] = 3", "G[1] = 3"),
    "array": ("G = array.array('d', [2.0])", "x * G[0]", "G[0] = 3", "G.append(3)"),
    "iterator": ("G = itertools.count()", "x * next(G)", "next(G)", "n = 0"),
    "generator": ("G = (n for n in range(99))", "x * next(G)", "next(G)", "n = 0"),
    "weak reference": ("class C: n = 2\nheld = C(); G = weakref.ref(held)", "x * (G().n if G() else 1)", "held = None", "n = 0"),
    "context variable": ("G = contextvars.ContextVar('G', default=2)", "x * G.get()", "G.set(3)", "n = 0"),
    "environment": ("G = os.environ", "x * float(os.environ.get('TESTS_MUTATIONS', 2))",
                    "os.environ['TESTS_MUTATIONS'] = str(2 * len(os.environ))", "os.environ['TESTS_MUTATIONS_OTHER'] = '3'"),
    "namespace": ("G = types.SimpleNamespace(n=2, m=types.SimpleNamespace(k=3))", "x * G.n * G.m.k", "G.m = G", "G.other = 1"),
    "data class": ("C = dataclasses.make_dataclass('C', [('n', int, 2)])\nG = C()", "x * G.n", "G.n = 3", "G.other = 3"),
    "attribute of a function": ("def G(): pass\nG.n = 2", "x * G.n", "G.n = 3", "G.other = 3"),
    "attribute of a module": ("G = types.ModuleType('m'); G.n = 2", "x * G.n", "G.n = 3", "G.other = 3"),
    "attribute of a tensor": ("G = torch.ones(4); G.n = 2", "x * G.n", "G.n = 3", "G.other = 3"),
    "instance dict": ("G = types.SimpleNamespace(n=2)", "x * vars(G)['n']", "G.n = 3", "G.other = 3"),
    "has attribute": ("G = types.SimpleNamespace(n=2)", "x * hasattr(G, 'm')", "G.m = 3", "G.other = 3"),
    "get attribute": ("G = types.SimpleNamespace(n=2)", "x * getattr(G, 'm', 3)", "G.m = 4", "G.other = 3"),
    "enumeration": ("class C(enum.Enum):\n    A = 2\nG = C", "x * G.A.value", "G.A._value_ = 3", "n = 0"),
    "instance check": ("class A: pass\nclass B(A): pass\nG = B()", "x * isinstance(G, A)", "class C: pass\nG.__class__ = C", "G.n = 1"),
    "name of a function": ("def G(): pass", "x * len(G.__name__)", "G.__name__ = 'longer'", "G.other = 1"),
    "name of a class": ("class G: pass", "x * len(G.__name__)", "G.__name__ = 'longer'", "G.other = 1"),
    "partial": ("G = functools.partial(pow, 3)", "x * G(2)", "G.__setstate__((pow, (4,), {}, None))", "G.other = 1"),
    "partial's new keyword": ("G = functools.partial(int, '11')", "x * G()", "G.keywords['base'] = 2", "G.other = 1"),
    "partial of a Python function": ("def g(n, m=1): return n * m\nG = functools.partial(g, 3)", "x * G()", "G.keywords['m'] = 2", "n = 0"),
    "partial of a Python function replaced": ("def g(n, m=1): return n * m\nG = functools.partial(g, 3)", "x * G()",
                                              "G.__setstate__((g, (4,), {}, {}))", "G.other = 1"),
    "bound method": ("class C:\n    n = 2\n    def m(self): return self.n\nheld = C(); G = held.m", "x * G()", "C.n = 3", "C.other = 3"),
    "cached function": ("@functools.lru_cache\ndef G(n): return n * K\nK = 2", "x * G(3)", "G.cache_clear(); K = 4", "K = 4"),
    "shape of a tensor": ("G = torch.ones(2)", "x * G.shape[0]", "G = torch.ones(3)", "G.fill_(3)"),
    "shape of a tensor resized": ("G = torch.ones(2)", "x * G.shape[0]", "G.resize_(3)", "G.fill_(1)"),
    "dtype of a tensor": ("G = torch.ones(4)", "x * 2 if G.dtype == torch.float32 else x", "G.data = G.double()", "G.fill_(3)"),
    "requires_grad of a tensor": ("G = torch.ones(4)", "x * 2 if G.requires_grad else x", "G.requires_grad_()", "G.fill_(3)"),
    "grad of a tensor": ("G = torch.ones(4)", "x * 2 if G.grad is None else x", "G.grad = torch.ones(4)", "G.fill_(3)"),
    "stride of a tensor": ("G = torch.ones(4, 4)", "x * G.stride(0)", "G.t_(); G.resize_(2, 2)", "G.fill_(3)"),
    "value of a tensor": ("G = torch.ones(4)", "x * G", "G.fill_(2)", "n = 0"),
    "set of a class's attributes": ("class G: a = 1", "x * len([n for n in dir(G) if n[0] == 'a'])", "G.ab = 1", "G.b = 1"),
}
_USED = ("array", "collections", "contextvars", "dataclasses", "enum", "functools", "itertools", "os", "types", "weakref")
# The result of a call that changes something itself is another one each time.
_MOVING = {"iterator", "generator"}


def _read(setup: str, expression: str, change: str, harmless: str) -> Case:
    text = f"import {', '.join(_USED)}\n{setup}\ndef f(x): return {expression}\ndef g(x): return {expression}"
    m = program(text)

    def run(statements: str) -> Callable[[], None]:
        return lambda: exec(statements, m.__dict__)

    return Case(m.f, run(change), run(harmless))


for _name, _row in READS.items():
    if _name not in _MOVING:
        KINDS[f"read: {_name}"] = functools.partial(_read, *_row)


@pytest.mark.parametrize("name", sorted(_MOVING))
def test_what_moves_on_by_itself(name: str) -> None:
    jitted, eager = trident.jit(_read(*READS[name]).function), _read(*READS[name]).function
    for _ in range(6):
        assert outcome(jitted) == outcome(eager)


@kind
def import_in_the_function() -> Case:
    name = "tests_mutations_fresh"
    sys.modules[name] = program("factor = 2.0")
    m = program(f"def f(x):\n  from {name} import factor\n  return x * factor")
    return Case(m.f, lambda: sys.modules.__setitem__(name, program("factor = 3.0")), lambda: setattr(m, "unrelated", 1))


# ------------------------------------------------------------------------------------------------------------- what torch looks at


def test_a_builtin_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    m = program("def f(x): return x * round(2.4)")
    jitted = trident.jit(m.f)
    for _ in range(3):
        assert outcome(jitted) == outcome(m.f)
    monkeypatch.setattr(builtins, "round", lambda number: 5)
    assert outcome(jitted) == outcome(m.f) == f"torch.float32 False NoneType {(X * 5).tolist()}"


def test_a_function_of_torch_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    m = program("def f(x): return torch.nn.functional.relu(x - 1)")
    jitted = trident.jit(m.f)
    for _ in range(3):
        assert outcome(jitted) == outcome(m.f)
    monkeypatch.setattr(torch.nn.functional, "relu", lambda x: x * 10)
    assert outcome(jitted) == outcome(m.f) == f"torch.float32 False NoneType {((X - 1) * 10).tolist()}"


KINDS_NAMES.extend(KINDS)
