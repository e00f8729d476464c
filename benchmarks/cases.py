"""The small cases: a function of two operators, and launches of Triton kernels.

Every variant is checked in its preparation: Trident must give eager's result and must hit, or it has no times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

import trident
from llm.peers import torch_compile

from . import floor
from .kernels import add_kernel, nop_kernel
from .measure import Case, Sampler, Variant, native_sampler, python_sampler

LAUNCHES = 32  # of the case with many launches in one function
QUEUE = 512  # launches that a device queues without making the host wait


def jitted(function: Callable[..., Any], arguments: Sequence[object], *, replay: bool = False) -> Callable[..., Any]:
    """`trident.jit(function)`, compiled for the arguments and seen to hit without leaving its trace. replay: as a graph, else in tier 1."""
    compiled = trident.jit(function, replay="always" if replay else "off")
    for _ in range(12 if replay else 5):
        compiled(*arguments)
    state = trident.explain(compiled).specializations[0].replay if replay else ""
    if replay and not state.startswith("replayed"):
        raise RuntimeError(f"a repeated call is not replayed: {state}")
    before = trident.explain(compiled)
    compiled(*arguments)
    after = trident.explain(compiled)
    if after.hits != before.hits + 1 or after.side_exits != before.side_exits:
        why = after.aborts[-1].text if after.aborts else (after.last_misses or (after.status,))[-1]
        raise RuntimeError(f"a repeated call is no hit ({after.side_exits} side exits): {why}")
    return compiled


def two_op(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x + y) * y


def two_op_case(device: torch.device, compile_too: bool) -> Case:
    x, y = (torch.randn(4, generator=torch.Generator().manual_seed(seed)).to(device) for seed in (0, 1))

    def python(make: Callable[[], Callable[..., Any]]) -> Callable[[], Sampler]:
        def prepare() -> Sampler:
            function = make()
            if not torch.equal(function(x, y), two_op(x, y)):
                raise RuntimeError("the result is not eager's")
            return python_sampler("function(x, y)", {"function": function, "x": x, "y": y}, device)

        return prepare

    variants = [Variant("eager", python(lambda: two_op))]
    if compile_too:
        variants.append(Variant("torch.compile", python(lambda: torch_compile(two_op, device))))
    variants += [
        Variant("Trident", python(lambda: jitted(two_op, (x, y)))),
        Variant("Trident, called from native code",
                lambda: native_sampler(floor.vectorcall_loop(jitted(two_op, (x, y)), (x, y)), device)),
        Variant("floor: native loop of at::_ops", lambda: native_sampler(floor.two_op_loop(x, y), device)),
    ]  # fmt: skip
    return Case("two-op", "(x + y) * y, 4 elements", variants, max_calls=QUEUE // 2 if device.type == "cuda" else 100_000)


def launch_add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    add_kernel[(1,)](x, y, out, x.numel(), BLOCK=128)


def launch_add_often(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> None:
    for _ in range(LAUNCHES):
        add_kernel[(1,)](x, y, out, x.numel(), BLOCK=128)


def launch_nop(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, e: torch.Tensor) -> None:
    nop_kernel[(1,)](a, b, c, d, e, 1, 1, 1, 1, 1, 1, 1, 1, 1, 32, 32, 32, 32, 32)


def native_launches(compiled: Any, device: torch.device, arguments: Sequence[object]) -> floor.NativeLoop:
    """A native loop over the launch of one kernel: the driver call on CUDA, the kernel's own code on the CPU."""
    if device.type == "cuda":
        return floor.cuda_launch_loop(compiled, (1, 1, 1), arguments)
    return floor.cpu_launch_loop(compiled, (1, 1, 1), arguments)


def launch_case(
    key: str,
    title: str,
    function: Callable[..., None],
    launch: Callable[..., Any],
    arguments: Sequence[torch.Tensor],
    native: Sequence[object],
    compile_too: bool,
    launches: int = 1,
    check: Callable[[], bool] = lambda: True,
) -> Case:
    """A case of a function that launches a kernel `launches` times.

    launch: launches the kernel once and returns what Triton compiled. native: run-time arguments of the compiled kernel. check:
    whether the kernel has done its work.
    """
    device = arguments[0].device
    names = [f"a{index}" for index in range(len(arguments))]
    statement = f"function({', '.join(names)})"

    def per_launch(sampler: Sampler) -> Sampler:
        return lambda calls: sampler(calls) / launches

    def worked() -> None:
        if not check():
            raise RuntimeError("the kernel's result is wrong")

    def python(make: Callable[[], Callable[..., Any]]) -> Callable[[], Sampler]:
        def prepare() -> Sampler:
            made = make()
            arguments[-1].zero_()
            made(*arguments)
            worked()
            return per_launch(python_sampler(statement, {"function": made, **dict(zip(names, arguments))}, device))

        return prepare

    def from_native_code() -> Sampler:
        loop = floor.vectorcall_loop(jitted(function, arguments), arguments)
        return per_launch(native_sampler(loop, device))

    def native_floor() -> Sampler:
        compiled = launch(*arguments)
        arguments[-1].zero_()
        loop = native_launches(compiled, device, native)
        loop(1)
        worked()
        return native_sampler(loop, device)

    variants = [Variant("eager", python(lambda: function))]
    if compile_too:
        variants.append(Variant("torch.compile", python(lambda: torch_compile(function, device))))
    variants += [
        Variant("Trident", python(lambda: jitted(function, arguments))),
        Variant("Trident, called from native code", from_native_code),
        Variant("floor: native loop of launches", native_floor),
    ]
    return Case(key, title, variants, max_calls=QUEUE // launches if device.type == "cuda" else 100_000)


def launch_cases(device: torch.device, compile_too: bool) -> list[Case]:
    x, y, out = (torch.randn(100, generator=torch.Generator().manual_seed(seed)).to(device) for seed in range(3))
    five = tuple(torch.zeros(1, device=device) for _ in range(5))

    def add(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> Any:
        return add_kernel[(1,)](x, y, out, x.numel(), BLOCK=128)

    def nop(*tensors: torch.Tensor) -> Any:
        return nop_kernel[(1,)](*tensors, *[1] * 9, *[32] * 5)

    def added() -> bool:
        return torch.equal(out, x + y)

    three, native = (x, y, out), (x, y, out, x.numel())
    many = f"{LAUNCHES} Triton launches in one function, per launch"
    return [
        launch_case("launch", "a Triton launch, 5 arguments", launch_add, add, three, native, compile_too, check=added),
        launch_case("launch-nop", "a Triton launch, 19 arguments, empty kernel", launch_nop, nop, five, five, compile_too),
        launch_case("launches", many, launch_add_often, add, three, native, compile_too, LAUNCHES, added),
    ]
