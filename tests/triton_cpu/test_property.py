"""Random programs: the same operations in a kernel and in PyTorch give the same bits."""

from __future__ import annotations

import hashlib
import importlib.util

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SETTINGS = settings(max_examples=40, deadline=None, derandomize=True,
                    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def load(tmp_path_factory, source):
    """Triton reads a kernel's source from its file."""
    name = f"generated_{hashlib.sha256(source.encode()).hexdigest()[:16]}"
    path = tmp_path_factory.mktemp("kernels") / f"{name}.py"
    path.write_text("import triton\nimport triton.language as tl\n\n\n" + source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- chains of f32 arithmetic ------------------------------------------------------------------------------------------------------

FLOAT_OPS = {
    "add": ("{a} + {b}", lambda a, b: a + b), "sub": ("{a} - {b}", lambda a, b: a - b), "mul": ("{a} * {b}", lambda a, b: a * b),
    "div": ("{a} / {b}", lambda a, b: a / b), "max": ("tl.maximum({a}, {b})", torch.fmax), "min": ("tl.minimum({a}, {b})", torch.fmin),
    "where": ("tl.where({a} < {b}, {b}, {a})", lambda a, b: torch.where(a < b, b, a)),
    "abs": ("tl.abs({a})", lambda a, b: a.abs()), "neg": ("-{a}", lambda a, b: -a),
    "half": ("{a}.to(tl.float16).to(tl.float32)", lambda a, b: a.half().float()),
    "bf16": ("{a}.to(tl.bfloat16).to(tl.float32)", lambda a, b: a.bfloat16().float()),
    "sqrt": ("tl.sqrt(tl.abs({a}))",  # PyTorch's own is not always rounded correctly
             lambda a, b: torch.from_numpy(np.sqrt(a.abs().numpy()))),
    "floor": ("tl.floor({a})", lambda a, b: a.floor()),
    "int": ("(tl.minimum(tl.maximum({a}, -1000.0), 1000.0)).to(tl.int32).to(tl.float32)",
            lambda a, b: torch.fmin(torch.fmax(a, torch.tensor(-1000.0)), torch.tensor(1000.0)).int().float()),
}


@SETTINGS
@given(steps=st.lists(st.tuples(st.sampled_from(sorted(FLOAT_OPS)), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12),
       n=st.integers(1, 300), block=st.sampled_from([16, 32, 128, 512]))
def test_float_chain(tmp_path_factory, steps, n, block):
    lines, names = [], ["x", "y", "2.5"]
    torch.manual_seed(n)
    x, y = torch.randn(n) * 3, torch.randn(n)
    values = [x, y, torch.full((n,), 2.5)]
    for k, (op, i, j) in enumerate(steps):
        text, function = FLOAT_OPS[op]
        a, b = i % len(names), j % len(names)
        a = a if names[a] != "2.5" else 0
        lines.append(f"    v{k} = " + text.format(a=names[a], b=names[b]))
        values.append(function(values[a], values[b]))
        names.append(f"v{k}")
    source = ("@triton.jit\ndef kernel(xp, yp, op, n, B: tl.constexpr):\n    i = tl.program_id(0) * B + tl.arange(0, B)\n    m = i < n\n"
              "    x = tl.load(xp + i, mask=m)\n    y = tl.load(yp + i, mask=m)\n" + "\n".join(lines)
              + f"\n    tl.store(op + i, {names[-1]}, mask=m)\n    tl.store(op + n + i, {names[-1]} + x, mask=m)\n")
    kernel = load(tmp_path_factory, source).kernel
    o = torch.zeros(2 * n)
    kernel[(-(-n // block),)](x, y, o, n, block)
    expected = torch.cat([values[-1], values[-1] + x])
    assert torch.equal(o.isnan(), expected.isnan())
    assert torch.equal(o.nan_to_num(7.0), expected.nan_to_num(7.0)), source


# -- programs that move integers around --------------------------------------------------------------------------------------------


def _reshape(t, a, b):
    return t.reshape(a, b)


MOVES = {
    "add_row": ("{t} + tl.sum({t}, 1)[:, None]", lambda t: t + t.sum(1, dtype=torch.int32)[:, None]),
    "add_column": ("{t} - tl.sum({t}, 0)[None, :]", lambda t: t - t.sum(0, dtype=torch.int32)[None, :]),
    "max_row": ("tl.maximum({t}, tl.max({t}, 1)[:, None] // 2)",
                lambda t: torch.maximum(t, torch.div(t.max(1).values, 2, rounding_mode="trunc")[:, None])),
    "scan0": ("tl.cumsum({t}, 0)", lambda t: t.cumsum(0, dtype=torch.int32)),
    "scan1": ("tl.cumsum({t}, 1, reverse=True)", lambda t: t.flip(1).cumsum(1, dtype=torch.int32).flip(1)),
    "rows": ("{t} * (tl.arange(0, {a})[:, None] + 1)", lambda t: t * (torch.arange(t.shape[0], dtype=torch.int32)[:, None] + 1)),
    "columns": ("tl.where(tl.arange(0, {b})[None, :] % 3 == 1, {t}, {t} ^ 5)",
                lambda t: torch.where(torch.arange(t.shape[1])[None, :] % 3 == 1, t, t ^ 5)),
    "shift": ("({t} << 1) - ({t} >> 2)", lambda t: (t << 1) - (t >> 2)),
    "mod": ("{t} % 1000", lambda t: torch.fmod(t, 1000)),
    "outer": ("{t} + tl.trans(tl.max({t}, 0)[:, None])", lambda t: t + t.max(0).values[None, :]),
    "sort": ("tl.sort({t})", lambda t: t.sort(1).values),
    "argmin": ("{t} + tl.argmin({t}, 1)[:, None]", lambda t: t + torch.from_numpy(t.numpy().argmin(1)).int()[:, None]),
}
HELPER = ("@triton.jit\ndef carry(t, n):\n    u = t\n    for k in range(n):\n        if k % 2 == 0:\n            u, t = t + 1, u\n"
          "        else:\n            t, u = u * 2, t + u\n    return t + u\n\n\n")


def _carry(t, n=3):
    u = t
    for k in range(n):
        if k % 2 == 0:
            u, t = t + 1, u
        else:
            t, u = u * 2, t + u
    return t + u


MOVES["loop"] = ("carry({t}, 3)", _carry)


@SETTINGS
@given(steps=st.lists(st.sampled_from([*sorted(MOVES), *["trans", "reshape", "store", "both"] * 3]), min_size=1, max_size=7),
       shape=st.sampled_from([(1, 16), (16, 1), (4, 8), (2, 64), (64, 2), (8, 128), (32, 32)]))
def test_moving_program(tmp_path_factory, steps, shape):
    a, b = shape
    torch.manual_seed(len(steps))
    x = torch.randint(-100, 100, shape, dtype=torch.int32)
    t, name, previous, lines, outs = x, "x", ("x", x), [], []  # `previous`: an earlier value, for programs that use one twice
    last = previous
    for k, step in enumerate(steps):
        new = f"v{k}"
        if step == "trans":
            t, (a, b), text = t.t(), (b, a), f"tl.trans({name})"
        elif step == "reshape":
            half = a // 2 if a > 1 else a
            factor = a // half
            t, (a, b), text = _reshape(t, half, b * factor), (half, b * factor), f"tl.reshape({name}, ({half}, {b * factor}))"
        elif step == "store":
            outs.append(t.reshape(-1))
            lines.append(f"    tl.store(op + {len(outs) - 1} * N + tl.arange(0, {a})[:, None] * {b} + tl.arange(0, {b})[None, :], {name})")
            continue
        elif step == "both":
            if previous[1].shape != t.shape:
                continue
            text, t = f"{name} - {previous[0]}", t - previous[1]
        else:
            template, function = MOVES[step]
            text, t = template.format(t=name, a=a, b=b), function(t)
        lines.append(f"    {new} = {text}")
        previous, last, name = last, (new, t), new
    outs.append(t.reshape(-1))
    lines.append(f"    tl.store(op + {len(outs) - 1} * N + tl.arange(0, {a})[:, None] * {b} + tl.arange(0, {b})[None, :], {name})")
    load_x = f"    x = tl.load(xp + tl.arange(0, {shape[0]})[:, None] * {shape[1]} + tl.arange(0, {shape[1]})[None, :])"
    source = HELPER + "\n".join(["@triton.jit", "def kernel(xp, op, N: tl.constexpr):", load_x, *lines, ""])
    kernel = load(tmp_path_factory, source).kernel
    o = torch.zeros(len(outs), x.numel(), dtype=torch.int32)
    kernel[(1,)](x, o, x.numel())
    assert torch.equal(o, torch.stack(outs)), source


@pytest.mark.parametrize("value", [0.0, -0.0, 1.0, float("inf"), float("nan"), 1e-45, -3.4e38])
def test_chain_special_values(tmp_path_factory, value):
    kernel = load(tmp_path_factory, "@triton.jit\ndef kernel(op, v, B: tl.constexpr):\n"
                  "    tl.store(op + tl.arange(0, B), tl.full((B,), 0.0, tl.float32) + v)\n    tl.store(op + B, v * 1.0)\n").kernel
    o = torch.zeros(65)
    kernel[(1,)](o, value, 64)
    expected = torch.tensor([0.0]) + torch.tensor([value])
    assert torch.equal(o[:64].nan_to_num(9.0), expected.expand(64).nan_to_num(9.0))
    assert torch.equal(o[64:].view(torch.int32), torch.tensor([value]).view(torch.int32)) or value != value
