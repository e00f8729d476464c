"""LLVM text of the launch itself, one per target: find the entry, check the grid, fill the parameters, submit.

Owns `TARGETS`: `trident_launch_<target>` and `trident_launch_<target>_floor` (the same kernel in a bare loop: what a launch is
measured against). It follows `launch_text.COMMON` in one module. What must hold: the GIL is free while the driver or a kernel
runs, as in Triton's own launchers.

May import: nothing of trident.
"""

from __future__ import annotations

from typing import Final

_CPU = """
define i32 @trident_launch_cpu(ptr %state, ptr %gil, i64 %gx, i64 %gy, i64 %gz, ptr %keys, ptr %slots) {
entry:
  %saved = load ptr, ptr %gil
  %entry.ptr = call ptr @find(ptr %state, ptr %gil, ptr %keys, i64 CPU_DEVICE)
  %missed = icmp eq ptr %entry.ptr, null
  br i1 %missed, label %miss, label %grid
grid:
  %g = call i32 @grid(i64 %gx, i64 %gy, i64 %gz, i64 1)
  switch i32 %g, label %miss [ i32 1, label %go  i32 0, label %restore ]
go:
  %n.at = getelementptr i64, ptr %entry.ptr, i64 ENTRY_PARAM_COUNT
  %n = load i64, ptr %n.at
  %params = alloca ptr, i64 %n
  call void @fill(ptr %entry.ptr, ptr %slots, ptr %params, i64 %n)
  call void @count(ptr %state, i64 STATE_HITS)
  %function = load ptr, ptr %entry.ptr
  %x = trunc i64 %gx to i32
  %y = trunc i64 %gy to i32
  %z = trunc i64 %gz to i32
  call void @yield(ptr %gil)
  call void %function(ptr %params, i32 %x, i32 %y, i32 %z)
  br label %restore
restore:
  call void @settle(ptr %gil, ptr %saved)
  ret i32 LAUNCHED
miss:
  call void @settle(ptr %gil, ptr %saved)
  ret i32 MISS
}

; The same kernel %count times with nothing around it: the floor that a launch is measured against.
define i32 @trident_launch_cpu_floor(ptr %entry.ptr, ptr %slots, i32 %gx, i32 %gy, i32 %gz, i64 %count) {
entry:
  %n.at = getelementptr i64, ptr %entry.ptr, i64 ENTRY_PARAM_COUNT
  %n = load i64, ptr %n.at
  %params = alloca ptr, i64 %n
  call void @fill(ptr %entry.ptr, ptr %slots, ptr %params, i64 %n)
  %function = load ptr, ptr %entry.ptr
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %body]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  call void %function(ptr %params, i32 %gx, i32 %gy, i32 %gz)
  %next = add i64 %i, 1
  br label %head
done:
  ret i32 0
}
"""

_CUDA = """
declare i32 @_ZN3c104cuda9GetDeviceEPa(ptr)
declare i32 @aoti_torch_get_current_cuda_stream(i32, ptr)
declare i32 @cuLaunchKernel(ptr, i32, i32, i32, i32, i32, i32, i32, ptr, ptr, ptr)
declare i32 @cuLaunchKernelEx(ptr, ptr, ptr, ptr)
declare i32 @cuGetErrorString(i32, ptr)
declare ptr @PyErr_Format(ptr, ptr, ...)
@message = internal constant [24 x i8] c"Triton Error [CUDA]: %s\\00"
@unknown = internal constant [14 x i8] c"unknown error\\00"

; Index of the current device, or -1.
define i32 @trident_launch_cuda_device() {
entry:
  %out = alloca i8
  %r = call i32 @_ZN3c104cuda9GetDeviceEPa(ptr %out)
  %ok = icmp eq i32 %r, 0
  %index = load i8, ptr %out
  %wide = sext i8 %index to i32
  %device = select i1 %ok, i32 %wide, i32 -1
  ret i32 %device
}

define i32 @trident_launch_cuda_stream(i32 %device, ptr %out) {
  %r = call i32 @aoti_torch_get_current_cuda_stream(i32 %device, ptr %out)
  ret i32 %r
}

define internal i32 @submit(ptr %entry.ptr, ptr %params, i32 %gx, i32 %gy, i32 %gz, ptr %stream) alwaysinline {
entry:
  %config = alloca {i32, i32, i32, i32, i32, i32, i32, ptr, ptr, i32}
  %function = load ptr, ptr %entry.ptr
  %block.at = getelementptr i64, ptr %entry.ptr, i64 ENTRY_BLOCK_SHARED
  %block = load i32, ptr %block.at
  %shared.at = getelementptr i32, ptr %block.at, i64 1
  %shared = load i32, ptr %shared.at
  %ctas.at = getelementptr i64, ptr %entry.ptr, i64 ENTRY_CTAS
  %ctas = load i32, ptr %ctas.at
  %x = mul i32 %gx, %ctas
  %count.at = getelementptr i64, ptr %entry.ptr, i64 ENTRY_ATTR_COUNT
  %count = load i32, ptr %count.at
  %plain = icmp eq i32 %count, 0
  br i1 %plain, label %simple, label %extended
simple:
  %r0 = call i32 @cuLaunchKernel(ptr %function, i32 %x, i32 %gy, i32 %gz, i32 %block, i32 1, i32 1, i32 %shared,
                                ptr %stream, ptr %params, ptr null)
  ret i32 %r0
extended:
  %c.y = getelementptr i8, ptr %config, i64 4
  %c.z = getelementptr i8, ptr %config, i64 8
  %c.bx = getelementptr i8, ptr %config, i64 12
  %c.by = getelementptr i8, ptr %config, i64 16
  %c.bz = getelementptr i8, ptr %config, i64 20
  %c.shared = getelementptr i8, ptr %config, i64 24
  %c.stream = getelementptr i8, ptr %config, i64 32
  %c.attrs = getelementptr i8, ptr %config, i64 40
  %c.count = getelementptr i8, ptr %config, i64 48
  %attrs.at = getelementptr i64, ptr %entry.ptr, i64 ENTRY_ATTRS
  %attrs = load ptr, ptr %attrs.at
  store i32 %x, ptr %config
  store i32 %gy, ptr %c.y
  store i32 %gz, ptr %c.z
  store i32 %block, ptr %c.bx
  store i32 1, ptr %c.by
  store i32 1, ptr %c.bz
  store i32 %shared, ptr %c.shared
  store ptr %stream, ptr %c.stream
  store ptr %attrs, ptr %c.attrs
  store i32 %count, ptr %c.count
  %r1 = call i32 @cuLaunchKernelEx(ptr %config, ptr %function, ptr %params, ptr null)
  ret i32 %r1
}

define internal i32 @raise(ptr %gil, i32 %code) noinline {
entry:
  call void @acquire(ptr %gil)
  %text = alloca ptr
  store ptr @unknown, ptr %text
  %r = call i32 @cuGetErrorString(i32 %code, ptr %text)
  %got = load ptr, ptr %text
  %null = icmp eq ptr %got, null
  %string = select i1 %null, ptr @unknown, ptr %got
  %none = call ptr (ptr, ptr, ...) @PyErr_Format(ptr inttoptr (i64 RUNTIME_ERROR to ptr), ptr @message, ptr %string)
  ret i32 FAILED
}

define i32 @trident_launch_cuda(ptr %state, ptr %gil, i64 %gx, i64 %gy, i64 %gz, ptr %keys, ptr %slots) {
entry:
  %saved = load ptr, ptr %gil
  %stream.at = alloca ptr
  %device = call i32 @trident_launch_cuda_device()
  %device.wide = sext i32 %device to i64
  %entry.ptr = call ptr @find(ptr %state, ptr %gil, ptr %keys, i64 %device.wide)
  %missed = icmp eq ptr %entry.ptr, null
  br i1 %missed, label %miss, label %grid
grid:
  %ctas.at = getelementptr i64, ptr %entry.ptr, i64 ENTRY_CTAS
  %ctas = load i64, ptr %ctas.at
  %g = call i32 @grid(i64 %gx, i64 %gy, i64 %gz, i64 %ctas)
  switch i32 %g, label %miss [ i32 1, label %go  i32 0, label %restore ]
go:
  %sr = call i32 @aoti_torch_get_current_cuda_stream(i32 %device, ptr %stream.at)
  %s.ok = icmp eq i32 %sr, 0
  br i1 %s.ok, label %ready, label %miss
ready:
  %stream = load ptr, ptr %stream.at
  %n.at = getelementptr i64, ptr %entry.ptr, i64 ENTRY_PARAM_COUNT
  %n = load i64, ptr %n.at
  %params = alloca ptr, i64 %n
  call void @fill(ptr %entry.ptr, ptr %slots, ptr %params, i64 %n)
  %x = trunc i64 %gx to i32
  %y = trunc i64 %gy to i32
  %z = trunc i64 %gz to i32
  call void @yield(ptr %gil)
  %r = call i32 @submit(ptr %entry.ptr, ptr %params, i32 %x, i32 %y, i32 %z, ptr %stream)
  switch i32 %r, label %error [ i32 0, label %hit  i32 CUDA_ERROR_INVALID_CONTEXT, label %miss ]
hit:
  call void @count(ptr %state, i64 STATE_HITS)
  br label %restore
restore:
  call void @settle(ptr %gil, ptr %saved)
  ret i32 LAUNCHED
error:
  %failed = call i32 @raise(ptr %gil, i32 %r)
  ret i32 FAILED
miss:
  call void @settle(ptr %gil, ptr %saved)
  ret i32 MISS
}

; The same kernel %count times with nothing around it: the floor that a launch is measured against.
define i32 @trident_launch_cuda_floor(ptr %entry.ptr, ptr %slots, i32 %gx, i32 %gy, i32 %gz, i64 %count) {
entry:
  %n.at = getelementptr i64, ptr %entry.ptr, i64 ENTRY_PARAM_COUNT
  %n = load i64, ptr %n.at
  %params = alloca ptr, i64 %n
  call void @fill(ptr %entry.ptr, ptr %slots, ptr %params, i64 %n)
  %stream.at = alloca ptr
  %device = call i32 @trident_launch_cuda_device()
  %sr = call i32 @aoti_torch_get_current_cuda_stream(i32 %device, ptr %stream.at)
  %s.ok = icmp eq i32 %sr, 0
  br i1 %s.ok, label %start, label %bad
start:
  %stream = load ptr, ptr %stream.at
  br label %head
head:
  %i = phi i64 [0, %start], [%next, %fine]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %r = call i32 @submit(ptr %entry.ptr, ptr %params, i32 %gx, i32 %gy, i32 %gz, ptr %stream)
  %ok = icmp eq i32 %r, 0
  br i1 %ok, label %fine, label %stop
fine:
  %next = add i64 %i, 1
  br label %head
done:
  ret i32 0
stop:
  ret i32 %r
bad:
  ret i32 -1
}
"""

TARGETS: Final[dict[str, str]] = {"cpu": _CPU, "cuda": _CUDA}
