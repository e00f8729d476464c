"""The LLVM engine compiles, resolves symbols and refuses what it must."""

from __future__ import annotations

import ctypes

import pytest
from llvmlite import ir

from trident.backend.native import engine
from trident.errors import NativeError

ADD = """
define i64 @add(i64 %a, i64 %b) {
  %r = add i64 %a, %b
  ret i64 %r
}
@table = global [2 x i64] [i64 7, i64 9]
"""


def test_text_runs() -> None:
    code = engine.compile_ir(ADD, name="add")
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(code.address("add"))(40, 2) == 42


def test_global_variable_has_an_address() -> None:
    code = engine.compile_ir(ADD, name="table")
    assert list((ctypes.c_int64 * 2).from_address(code.address("table"))) == [7, 9]


@pytest.mark.parametrize("opt", [0, 1, 2, 3])
def test_llvmlite_module_runs_at_every_level(opt: int) -> None:
    word = ir.IntType(64)
    module = ir.Module("square")
    function = ir.Function(module, ir.FunctionType(word, [word]), "square")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    builder.ret(builder.mul(function.args[0], function.args[0]))
    code = engine.compile_ir(module, opt=opt, name="square")
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("square"))(12) == 144


def test_added_symbol_is_called() -> None:
    seen: list[int] = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_int64)(seen.append)
    engine.add_symbol("test_engine_callback", ctypes.cast(callback, ctypes.c_void_p).value or 0)
    code = engine.compile_ir("""
declare void @test_engine_callback(i64)
define void @go() {
  call void @test_engine_callback(i64 5)
  ret void
}
""")
    ctypes.CFUNCTYPE(None)(code.address("go"))()
    assert seen == [5]


def test_symbol_cannot_change() -> None:
    engine.add_symbol("test_engine_fixed", 16)
    engine.add_symbol("test_engine_fixed", 16)
    with pytest.raises(NativeError, match="another address"):
        engine.add_symbol("test_engine_fixed", 32)


def test_python_api_is_resolved() -> None:
    code = engine.compile_ir("""
declare ptr @PyLong_FromLong(i64)
define ptr @make(i64 %n) {
  %r = tail call ptr @PyLong_FromLong(i64 %n)
  ret ptr %r
}
""")
    assert ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_int64)(code.address("make"))(123456789) == 123456789
    assert engine.find_symbol("PyLong_FromLong") == engine.api_address("PyLong_FromLong")


def test_undefined_symbol_is_refused() -> None:
    with pytest.raises(NativeError, match="no_such_symbol_anywhere"):
        engine.compile_ir("""
declare void @no_such_symbol_anywhere()
define void @f() {
  call void @no_such_symbol_anywhere()
  ret void
}
""")


def test_bad_text_is_refused() -> None:
    with pytest.raises(NativeError, match="broken"):
        engine.compile_ir("define i64 @f( {", name="broken")


def test_unknown_address_and_close() -> None:
    code = engine.compile_ir(ADD, name="closing")
    with pytest.raises(NativeError, match="no symbol 'sub'"):
        code.address("sub")
    code.close()
    code.close()
    with pytest.raises(NativeError, match="closed"):
        code.address("add")


def test_assembly_dump() -> None:
    assert "add:" in engine.assembly(ADD)


def test_closing_inside_itself() -> None:
    """A finalizer that runs while LLVM frees code may free the same code."""
    closed = []

    class Engine:
        def close(self) -> None:
            closed.append(self)
            compiled.close()

    compiled = engine.Compiled("test", Engine())  # type: ignore[arg-type]
    compiled.close()
    compiled.close()
    assert len(closed) == 1 and compiled.closed
