"""LLVM text of what every Triton launch shares: guard words, table look-up, parameters, and the way back to Python.

Owns `COMMON`: functions `trident_launch_tensor`, `trident_launch_miss` and internal ones. Names in capitals are numbers of
`launch_layout`. What must hold: Python objects are touched only with the GIL, plain loads of guard words excepted (they race
harmlessly with a writer: as a launch a moment earlier would); on return code 0 or MISS the GIL is held exactly if it was at
entry, on FAILED it is held.

May import: nothing of trident.
"""

from __future__ import annotations

from typing import Final

COMMON: Final = """
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @_PyDict_GetItem_KnownHash(ptr, ptr, i64)
declare ptr @PyTuple_New(i64)
declare i32 @PyTuple_SetItem(ptr, i64, ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyFloat_FromDouble(double)
declare ptr @PyBool_FromLong(i64)
declare ptr @PyBytes_FromStringAndSize(ptr, i64)
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare void @Py_IncRef(ptr)
declare void @Py_DecRef(ptr)
declare ptr @_Z16THPVariable_WrapRKN2at10TensorBaseE(ptr)
declare i32 @aoti_torch_get_data_ptr(ptr, ptr)
declare i32 @aoti_torch_get_dtype(ptr, ptr)
declare i32 @aoti_torch_get_device_type(ptr, ptr)
declare i32 @aoti_torch_get_layout(ptr, ptr)
declare i32 @aoti_torch_get_numel(ptr, ptr)
declare i32 @aoti_torch_get_storage_offset(ptr, ptr)

define internal void @acquire(ptr %gil) {
entry:
  %saved = load ptr, ptr %gil
  %held = icmp eq ptr %saved, null
  br i1 %held, label %done, label %take
take:
  call void @PyEval_RestoreThread(ptr %saved)
  store ptr null, ptr %gil
  br label %done
done:
  ret void
}

; The GIL as it was at entry, when *%gil was %saved.
define internal void @settle(ptr %gil, ptr %saved) {
entry:
  %was.held = icmp eq ptr %saved, null
  br i1 %was.held, label %take, label %free
take:
  call void @acquire(ptr %gil)
  ret void
free:
  call void @yield(ptr %gil)
  ret void
}

define internal void @yield(ptr %gil) {
entry:
  %now = load ptr, ptr %gil
  %held = icmp eq ptr %now, null
  br i1 %held, label %give, label %done
give:
  %mine = call ptr @PyEval_SaveThread()
  store ptr %mine, ptr %gil
  br label %done
done:
  ret void
}

; Whether a host tensor has elements but (as far as its data pointer tells: an element has 16 bytes at the most) no memory.
define internal i1 @unbacked(ptr %tensor, i64 %address) noinline {
entry:
  %out = alloca i64
  %r0 = call i32 @aoti_torch_get_numel(ptr %tensor, ptr %out)
  %numel = load i64, ptr %out
  %r1 = call i32 @aoti_torch_get_storage_offset(ptr %tensor, ptr %out)
  %offset = load i64, ptr %out
  %bytes = mul i64 %offset, 16
  %within = icmp ule i64 %address, %bytes
  %some = icmp ne i64 %numel, 0
  %empty = and i1 %within, %some
  %r = or i32 %r0, %r1
  %odd = icmp ne i32 %r, 0
  %result = or i1 %odd, %empty
  ret i1 %result
}

; Facts of a tensor operand: device type << 16 | dtype << 1 | (data pointer is a multiple of 16), and the pointer into %slot.
; -1 where Python must look at it: its device type is not %device_type (-1: any), or it has no ordinary memory, or none at all.
define i32 @trident_launch_tensor(ptr %tensor, i32 %device_type, ptr %slot) {
entry:
  %out = alloca i32
  %r0 = call i32 @aoti_torch_get_device_type(ptr %tensor, ptr %out)
  %type = load i32, ptr %out
  %r1 = call i32 @aoti_torch_get_layout(ptr %tensor, ptr %out)
  %layout = load i32, ptr %out
  %r2 = call i32 @aoti_torch_get_dtype(ptr %tensor, ptr %out)
  %dtype = load i32, ptr %out
  %r01 = or i32 %r0, %r1
  %r012 = or i32 %r01, %r2
  %odd = or i32 %r012, %layout
  %any = icmp slt i32 %device_type, 0
  %wanted = select i1 %any, i32 %type, i32 %device_type
  %wrong = xor i32 %type, %wanted
  %far = lshr i32 %type, 8
  %wide = lshr i32 %dtype, 7
  %bad1 = or i32 %odd, %wrong
  %bad2 = or i32 %far, %wide
  %bad = or i32 %bad1, %bad2
  %fine = icmp eq i32 %bad, 0
  br i1 %fine, label %pointer, label %no
pointer:
  %r3 = call i32 @aoti_torch_get_data_ptr(ptr %tensor, ptr %slot)
  %ok = icmp eq i32 %r3, 0
  br i1 %ok, label %yes, label %no
yes:
  %address = load i64, ptr %slot
  %high.enough = icmp uge i64 %address, LOWEST_ADDRESS
  br i1 %high.enough, label %usable, label %suspect
suspect:
  %is.host = icmp eq i32 %type, 0
  br i1 %is.host, label %look, label %usable
look:
  %unbacked = call i1 @unbacked(ptr %tensor, i64 %address)
  br i1 %unbacked, label %no, label %usable
usable:
  %low = and i64 %address, 15
  %aligned = icmp eq i64 %low, 0
  %bit = zext i1 %aligned to i32
  %middle = shl i32 %dtype, 1
  %high = shl i32 %type, 16
  %lower = or i32 %middle, %bit
  %code = or i32 %high, %lower
  ret i32 %code
no:
  ret i32 -1
}

; A dict guard whose version tag moved: take the GIL, look the one key up, and remember the tag if the value is the same object.
define internal i1 @recheck(ptr %gil, ptr %guard) noinline {
entry:
  call void @acquire(ptr %gil)
  %dict = load ptr, ptr %guard
  %tag.at = getelementptr i8, ptr %dict, i64 DICT_VERSION_TAG
  %tag = load i64, ptr %tag.at
  %key.at = getelementptr i64, ptr %guard, i64 2
  %key = load ptr, ptr %key.at
  %hash.at = getelementptr i64, ptr %guard, i64 3
  %hash = load i64, ptr %hash.at
  %expected.at = getelementptr i64, ptr %guard, i64 4
  %expected = load ptr, ptr %expected.at
  %value = call ptr @_PyDict_GetItem_KnownHash(ptr %dict, ptr %key, i64 %hash)
  %same = icmp eq ptr %value, %expected
  br i1 %same, label %renew, label %no
renew:
  %seen.at = getelementptr i64, ptr %guard, i64 1
  store i64 %tag, ptr %seen.at
  ret i1 true
no:
  ret i1 false
}

; The entry for a key and device, or null. Guards first.
define internal ptr @find(ptr %state, ptr %gil, ptr %keys, i64 %device) alwaysinline {
entry:
  %table = load atomic ptr, ptr %state acquire, align 8
  %empty = icmp eq ptr %table, null
  br i1 %empty, label %miss, label %words
words:
  %nw = load i64, ptr %table
  %wp.at = getelementptr i64, ptr %table, i64 TABLE_WORD_GUARDS
  %wp = load ptr, ptr %wp.at
  br label %word.head
word.head:
  %wi = phi i64 [0, %words], [%wi.next, %word.body]
  %word.more = icmp ult i64 %wi, %nw
  br i1 %word.more, label %word.body, label %dicts
word.body:
  %rec = getelementptr {ptr, i64, i64}, ptr %wp, i64 %wi
  %at = load ptr, ptr %rec
  %mask.at = getelementptr i64, ptr %rec, i64 1
  %mask = load i64, ptr %mask.at
  %want.at = getelementptr i64, ptr %rec, i64 2
  %want = load i64, ptr %want.at
  %now = load i64, ptr %at
  %masked = and i64 %now, %mask
  %word.same = icmp eq i64 %masked, %want
  %wi.next = add i64 %wi, 1
  br i1 %word.same, label %word.head, label %miss
dicts:
  %nd.at = getelementptr i64, ptr %table, i64 TABLE_DICT_COUNT
  %nd = load i64, ptr %nd.at
  %dp.at = getelementptr i64, ptr %table, i64 TABLE_DICT_GUARDS
  %dp = load ptr, ptr %dp.at
  br label %dict.head
dict.head:
  %di = phi i64 [0, %dicts], [%di.next, %dict.next]
  %dict.more = icmp ult i64 %di, %nd
  br i1 %dict.more, label %dict.body, label %search
dict.body:
  %guard = getelementptr {ptr, i64, ptr, i64, ptr}, ptr %dp, i64 %di
  %dict = load ptr, ptr %guard
  %tag.at = getelementptr i8, ptr %dict, i64 DICT_VERSION_TAG
  %tag = load i64, ptr %tag.at
  %seen.at = getelementptr i64, ptr %guard, i64 1
  %seen = load i64, ptr %seen.at
  %dict.same = icmp eq i64 %tag, %seen
  br i1 %dict.same, label %dict.next, label %dict.moved
dict.moved:
  %still = call i1 @recheck(ptr %gil, ptr %guard)
  br i1 %still, label %dict.next, label %miss
dict.next:
  %di.next = add i64 %di, 1
  br label %dict.head
search:
  %n.at = getelementptr i64, ptr %table, i64 TABLE_ENTRY_COUNT
  %n = load atomic i64, ptr %n.at acquire, align 8
  %entries.at = getelementptr i64, ptr %table, i64 TABLE_ENTRIES
  %entries = load ptr, ptr %entries.at
  %stride.at = getelementptr i64, ptr %table, i64 TABLE_STRIDE
  %stride = load i64, ptr %stride.at
  %nk.at = getelementptr i64, ptr %table, i64 TABLE_KEY_WORDS
  %nk = load i64, ptr %nk.at
  %hint.at = getelementptr i64, ptr %table, i64 TABLE_HINT
  %hint = load i64, ptr %hint.at
  br label %entry.head
entry.head:
  %ei = phi i64 [0, %search], [%ei.next, %entry.next]
  %entry.more = icmp ult i64 %ei, %n
  br i1 %entry.more, label %entry.body, label %miss
entry.body:
  %shifted = add i64 %hint, %ei
  %over = icmp uge i64 %shifted, %n
  %wrapped = sub i64 %shifted, %n
  %index = select i1 %over, i64 %wrapped, i64 %shifted
  %offset = mul i64 %index, %stride
  %candidate = getelementptr i8, ptr %entries, i64 %offset
  %device.at = getelementptr i64, ptr %candidate, i64 ENTRY_DEVICE
  %its.device = load i64, ptr %device.at
  %device.same = icmp eq i64 %its.device, %device
  br i1 %device.same, label %key.head, label %entry.next
key.head:
  %ki = phi i64 [0, %entry.body], [%ki.next, %key.body]
  %key.more = icmp ult i64 %ki, %nk
  br i1 %key.more, label %key.body, label %found
key.body:
  %mine.at = getelementptr i64, ptr %keys, i64 %ki
  %mine = load i64, ptr %mine.at
  %key.index = add i64 %ki, ENTRY_WORDS
  %its.at = getelementptr i64, ptr %candidate, i64 %key.index
  %its = load i64, ptr %its.at
  %key.same = icmp eq i64 %mine, %its
  %ki.next = add i64 %ki, 1
  br i1 %key.same, label %key.head, label %entry.next
entry.next:
  %ei.next = add i64 %ei, 1
  br label %entry.head
found:
  %first = icmp eq i64 %ei, 0
  br i1 %first, label %hit, label %move
move:
  store i64 %index, ptr %hint.at
  br label %hit
hit:
  ret ptr %candidate
miss:
  ret ptr null
}

; 1: launch, 0: an empty grid, -1: whatever Triton does with such a grid.
define internal i32 @grid(i64 %gx, i64 %gy, i64 %gz, i64 %ctas) alwaysinline {
entry:
  %any = or i64 %gx, %gy
  %all = or i64 %any, %gz
  %fits = icmp ult i64 %all, 2147483648
  br i1 %fits, label %small, label %odd
small:
  %xy = mul i64 %gx, %gy
  %xy.fits = icmp ult i64 %xy, 2147483648
  br i1 %xy.fits, label %medium, label %odd
medium:
  %xyz = mul i64 %xy, %gz
  %xyz.fits = icmp ult i64 %xyz, 2147483648
  %xc = mul i64 %gx, %ctas
  %xc.fits = icmp ult i64 %xc, 2147483648
  %both = and i1 %xyz.fits, %xc.fits
  br i1 %both, label %normal, label %odd
normal:
  %nonempty = icmp ne i64 %xyz, 0
  %code = zext i1 %nonempty to i32
  ret i32 %code
odd:
  ret i32 -1
}

define internal void @fill(ptr %record, ptr %slots, ptr %params, i64 %n) alwaysinline {
entry:
  %plan.at = getelementptr i64, ptr %record, i64 ENTRY_PLAN
  %plan = load ptr, ptr %plan.at
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %body]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %at = getelementptr i64, ptr %plan, i64 %i
  %where = load i64, ptr %at
  %near = icmp ult i64 %where, PLAN_OFFSETS
  %slot = getelementptr i8, ptr %slots, i64 %where
  %far = inttoptr i64 %where to ptr
  %pointer = select i1 %near, ptr %slot, ptr %far
  %to = getelementptr ptr, ptr %params, i64 %i
  store ptr %pointer, ptr %to
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

define internal void @count(ptr %state, i64 %word) alwaysinline {
  %at = getelementptr i64, ptr %state, i64 %word
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  ret void
}

; A new reference to the Python object of an operand, or null with an exception set.
define internal ptr @box(ptr %at, i8 %kind) {
entry:
  switch i8 %kind, label %object [ i8 0, label %tensor  i8 1, label %int  i8 2, label %float  i8 3, label %bool ]
tensor:
  %t = load ptr, ptr %at
  %to = call ptr @_Z16THPVariable_WrapRKN2at10TensorBaseE(ptr %t)
  ret ptr %to
int:
  %i = load i64, ptr %at
  %io = call ptr @PyLong_FromLongLong(i64 %i)
  ret ptr %io
float:
  %f = load double, ptr %at
  %fo = call ptr @PyFloat_FromDouble(double %f)
  ret ptr %fo
bool:
  %b = load i64, ptr %at
  %bo = call ptr @PyBool_FromLong(i64 %b)
  ret ptr %bo
object:
  %o = load ptr, ptr %at
  call void @Py_IncRef(ptr %o)
  ret ptr %o
}

define internal ptr @box_all(ptr %state, ptr %values) {
entry:
  %n.at = getelementptr i64, ptr %state, i64 STATE_OPERANDS
  %n = load i64, ptr %n.at
  %kinds.at = getelementptr i64, ptr %state, i64 STATE_KINDS
  %kinds = load ptr, ptr %kinds.at
  %tuple = call ptr @PyTuple_New(i64 %n)
  %made = icmp ne ptr %tuple, null
  br i1 %made, label %head, label %none
head:
  %i = phi i64 [0, %entry], [%next, %keep]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %kind.at = getelementptr i8, ptr %kinds, i64 %i
  %kind = load i8, ptr %kind.at
  %at = getelementptr i64, ptr %values, i64 %i
  %object = call ptr @box(ptr %at, i8 %kind)
  %boxed = icmp ne ptr %object, null
  br i1 %boxed, label %keep, label %drop
keep:
  %r = call i32 @PyTuple_SetItem(ptr %tuple, i64 %i, ptr %object)
  %next = add i64 %i, 1
  br label %head
done:
  ret ptr %tuple
drop:
  call void @Py_DecRef(ptr %tuple)
  br label %none
none:
  ret ptr null
}

define internal void @drop(ptr %object) {
entry:
  %null = icmp eq ptr %object, null
  br i1 %null, label %done, label %drop
drop:
  call void @Py_DecRef(ptr %object)
  br label %done
done:
  ret void
}

; Launch through Python: miss(gx, gy, gz, operands, key or None). %keys null: no key could be computed. 0 or FAILED.
define i32 @trident_launch_miss(ptr %state, ptr %gil, i64 %gx, i64 %gy, i64 %gz, ptr %values, ptr %keys) {
entry:
  %saved = load ptr, ptr %gil
  call void @acquire(ptr %gil)
  call void @count(ptr %state, i64 STATE_MISSES)
  %args = alloca [6 x ptr]
  %a0 = getelementptr ptr, ptr %args, i64 1
  %a1 = getelementptr ptr, ptr %args, i64 2
  %a2 = getelementptr ptr, ptr %args, i64 3
  %a3 = getelementptr ptr, ptr %args, i64 4
  %a4 = getelementptr ptr, ptr %args, i64 5
  %x = call ptr @PyLong_FromLongLong(i64 %gx)
  %y = call ptr @PyLong_FromLongLong(i64 %gy)
  %z = call ptr @PyLong_FromLongLong(i64 %gz)
  %tuple = call ptr @box_all(ptr %state, ptr %values)
  %keyless = icmp eq ptr %keys, null
  %length.at = getelementptr i64, ptr %state, i64 STATE_KEY_BYTES
  %length = load i64, ptr %length.at
  %used = select i1 %keyless, i64 0, i64 %length
  %bytes = call ptr @PyBytes_FromStringAndSize(ptr %keys, i64 %used)
  store ptr %x, ptr %a0
  store ptr %y, ptr %a1
  store ptr %z, ptr %a2
  store ptr %tuple, ptr %a3
  store ptr %bytes, ptr %a4
  %fx = icmp eq ptr %x, null
  %fy = icmp eq ptr %y, null
  %fz = icmp eq ptr %z, null
  %ft = icmp eq ptr %tuple, null
  %fb = icmp eq ptr %bytes, null
  %f1 = or i1 %fx, %fy
  %f2 = or i1 %f1, %fz
  %f3 = or i1 %f2, %ft
  %f4 = or i1 %f3, %fb
  br i1 %f4, label %clean, label %call
call:
  %miss.at = getelementptr i64, ptr %state, i64 STATE_MISS
  %miss = load ptr, ptr %miss.at
  %result = call ptr @PyObject_Vectorcall(ptr %miss, ptr %a0, i64 -9223372036854775803, ptr null)
  br label %clean
clean:
  %got = phi ptr [null, %entry], [%result, %call]
  call void @drop(ptr %x)
  call void @drop(ptr %y)
  call void @drop(ptr %z)
  call void @drop(ptr %tuple)
  call void @drop(ptr %bytes)
  %bad = icmp eq ptr %got, null
  br i1 %bad, label %failed, label %fine
failed:
  ret i32 FAILED
fine:
  call void @Py_DecRef(ptr %got)
  call void @settle(ptr %gil, ptr %saved)
  ret i32 LAUNCHED
}
"""
