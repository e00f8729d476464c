"""The contract: op table, dialect, builder, reference rules."""

from __future__ import annotations

import pytest
from torch_mlir import ir as mlir

from trident.backend import reference
from trident.ir import NULL, Build, FrameState, Known, Slot, Snapshot, TraceBuilder, rebuild
from trident.ir.dialect import context, irdl_text
from trident.ir.ops import BY_NAME, GUARD_KINDS, OPS, TYPES, Effect, may_leave
from trident.ir.trace import GuardInfo


def info(kind: str = "type") -> GuardInfo:
    return GuardInfo("x", kind, "f.py", 1)


def test_every_op_is_in_the_dialect_and_has_a_reference_rule() -> None:
    text = irdl_text()
    for op in OPS:
        assert f"irdl.operation @{op.name} " in text
        assert op.name in reference.RULES
    assert set(reference.RULES) == {op.name for op in OPS}


def test_names_are_unique_and_types_known() -> None:
    assert len(BY_NAME) == len(OPS)
    for op in OPS:
        for kind in (*op.operands, *op.results):
            assert kind.rstrip("*").removesuffix("s") in TYPES or kind in TYPES or kind in ("any", "values*")


def test_pure_ops_never_raise() -> None:
    for op in OPS:
        if op.effect is Effect.PURE:
            assert not op.may_raise


def test_guard_kinds_have_texts() -> None:
    assert all(GUARD_KINDS.values())


def test_builder_round_trip() -> None:
    b = TraceBuilder("f", 2)
    condition = b.op("type_is", b.args[0], index=b.constant_index(int))
    b.guard(condition, True, info())
    trace = b.ret(b.args[1])
    with context():
        again = mlir.Module.parse(str(trace))
        assert str(again) == str(trace.module)


def test_wrong_operands_are_refused() -> None:
    b = TraceBuilder("f", 1)
    with pytest.raises((AssertionError, mlir.MLIRError)):
        b.op("add_int", b.args[0], b.args[0])
        b.ret(b.args[0])


def test_atens_can_leave() -> None:
    assert may_leave("torch.aten.add.Tensor") and may_leave("torch.operator") and may_leave("trident.guard")
    assert not may_leave("torch.constant.int") and not may_leave("trident.pack")


def test_int_constants_must_fit() -> None:
    b = TraceBuilder("f", 1)
    b.int(2**63 - 1), b.int(-(2**63))
    with pytest.raises(OverflowError):
        b.int(2**63)


def test_float_constants_keep_bits() -> None:
    b = TraceBuilder("f", 1)
    assert b.float(0.0) != b.float(-0.0)
    assert b.float(0.1) == b.float(0.1)


def test_rebuild_shares_identity() -> None:
    def f(a: object, c: object) -> object:
        return (a, c)

    shared = Build(lambda *items: list(items), (Slot(0), Known("k")), "list")
    frame = FrameState(Known(f), f.__code__, 0, (shared, shared), (NULL, Slot(1)))
    (made,) = rebuild(Snapshot((frame,), 1, "f.py"), (1, 2))
    assert made.locals[0] == [1, "k"] and made.locals[0] is made.locals[1]
    assert made.stack == [NULL, 2] and made.function is f
