"""A pool of native threads that share the iterations of a loop.

Owns `void trident_pool_run(ptr task, ptr context, i64 count, i32 threads)`: calls `task(context, begin, end)` until the ranges have
covered 0 to count, in up to `threads` threads, and returns when all are done; and `i32 trident_pool_threads()`, what
`torch.set_num_threads` asks for. What must hold:

* every iteration is run exactly once, and what the tasks wrote is visible to the caller;
* a short loop stays in the calling thread: the others are asked after SERIAL_CYCLES only, so a small loop costs what it did;
* only one loop at a time has the pool; a loop that comes meanwhile (of another thread, or of a task) runs in its caller;
* the threads run no Python and take no signals; after a fork the child has a pool without threads, which starts its own.

The word `@job` is what the threads sleep on: the number of the loop in its upper bits, how many threads take part in its lowest byte.
May import: engine, symbols.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from trident.backend.native import engine, symbols

RUN: Final = "trident_pool_run"
THREADS: Final = "trident_pool_threads"
MOST_THREADS: Final = 128
SERIAL_CYCLES: Final = 60_000
RANGES_PER_THREAD: Final = 8
FUTEX, WAIT, WAKE = 202, 128, 129  # the number of the system call; FUTEX_WAIT and FUTEX_WAKE, both private

_TEXT: Final = f"""
@job = internal global i32 0
@busy = internal global i32 0
@started = internal global i32 0
@running = internal global i32 0
@prepared = internal global i32 0
@task = internal global ptr null
@context = internal global ptr null
@next = internal global i64 0
@end = internal global i64 0
@step = internal global i64 1

declare i64 @syscall(i64, ...)
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @__register_atfork(ptr, ptr, ptr, ptr)
declare i32 @_ZN2at15get_num_threadsEv()
declare i64 @llvm.readcyclecounter()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define i32 @{THREADS}() {{
  %n = call i32 @_ZN2at15get_num_threadsEv()
  %many = icmp sgt i32 %n, {MOST_THREADS}
  %out = select i1 %many, i32 {MOST_THREADS}, i32 %n
  ret i32 %out
}}

define internal void @after_fork() {{
  store i32 0, ptr @busy
  store i32 0, ptr @started
  store i32 0, ptr @running
  ret void
}}

; ranges of the current loop until there are none left
define internal void @share() {{
  %task = load ptr, ptr @task
  %context = load ptr, ptr @context
  %end = load i64, ptr @end
  %step = load i64, ptr @step
  br label %again
again:
  %begin = atomicrmw add ptr @next, i64 %step monotonic
  %left = icmp slt i64 %begin, %end
  br i1 %left, label %run, label %done
run:
  %to = add i64 %begin, %step
  %short = icmp slt i64 %to, %end
  %stop = select i1 %short, i64 %to, i64 %end
  call void %task(ptr %context, i64 %begin, i64 %stop)
  br label %again
done:
  ret void
}}

define internal ptr @worker(ptr %argument) {{
  %number64 = ptrtoint ptr %argument to i64
  %number = trunc i64 %number64 to i32
  br label %look
look:
  %last = phi i32 [ 0, %0 ], [ %last, %sleep ], [ %seen, %skip ]
  %seen = load atomic i32, ptr @job acquire, align 4
  %same = icmp eq i32 %seen, %last
  br i1 %same, label %sleep, label %new
sleep:
  call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr @job, i64 {WAIT}, i32 %last, ptr null)
  br label %look
new:
  %wanted = and i32 %seen, 255
  %mine = icmp ult i32 %number, %wanted
  br i1 %mine, label %work, label %skip
work:
  call void @share()
  %before = atomicrmw sub ptr @running, i32 1 acq_rel
  %was_last = icmp eq i32 %before, 1
  br i1 %was_last, label %wake, label %skip
wake:
  call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr @running, i64 {WAKE}, i32 1)
  br label %skip
skip:
  br label %look
}}

; start threads until there are so many, and say how many there are; a thread inherits a mask that blocks all signals
define internal i32 @start(i32 %wanted) {{
  %id = alloca i64
  %all = alloca [16 x i64]
  %old = alloca [16 x i64]
  %first = load i32, ptr @started
  %enough = icmp sge i32 %first, %wanted
  br i1 %enough, label %done, label %begin
begin:
  %ready = load i32, ptr @prepared
  %is_ready = icmp ne i32 %ready, 0
  br i1 %is_ready, label %mask, label %prepare
prepare:
  store i32 1, ptr @prepared
  call i32 @__register_atfork(ptr null, ptr null, ptr @after_fork, ptr null)
  br label %mask
mask:
  call void @llvm.memset.p0.i64(ptr %all, i8 -1, i64 128, i1 false)
  call i32 @pthread_sigmask(i32 2, ptr %all, ptr %old)
  br label %more
more:
  %have = phi i32 [ %first, %mask ], [ %now, %made ]
  %full = icmp sge i32 %have, %wanted
  br i1 %full, label %restore, label %make
make:
  %have64 = zext i32 %have to i64
  %argument = inttoptr i64 %have64 to ptr
  %failed = call i32 @pthread_create(ptr %id, ptr null, ptr @worker, ptr %argument)
  %ok = icmp eq i32 %failed, 0
  br i1 %ok, label %made, label %restore
made:
  %thread = load i64, ptr %id
  call i32 @pthread_detach(i64 %thread)
  %now = add i32 %have, 1
  store i32 %now, ptr @started
  br label %more
restore:
  call i32 @pthread_sigmask(i32 2, ptr %old, ptr null)
  br label %done
done:
  %there = load i32, ptr @started
  ret i32 %there
}}

define void @{RUN}(ptr %task, ptr %context, i64 %count, i32 %threads) {{
  %t0 = call i64 @llvm.readcyclecounter()
  br label %serial
serial:
  %begin = phi i64 [ 0, %0 ], [ %stop, %ran ]
  %size = phi i64 [ 1, %0 ], [ %twice, %ran ]
  %over = icmp sge i64 %begin, %count
  br i1 %over, label %out, label %one
one:
  %to = add i64 %begin, %size
  %short = icmp slt i64 %to, %count
  %stop = select i1 %short, i64 %to, i64 %count
  call void %task(ptr %context, i64 %begin, i64 %stop)
  br label %ran
ran:
  %twice = shl i64 %size, 1
  %t1 = call i64 @llvm.readcyclecounter()
  %spent = sub i64 %t1, %t0
  %long = icmp ugt i64 %spent, {SERIAL_CYCLES}
  br i1 %long, label %share, label %serial
share:
  %rest = sub i64 %count, %stop
  %any = icmp sgt i64 %rest, 1
  %several = icmp sgt i32 %threads, 1
  %worth = and i1 %any, %several
  br i1 %worth, label %take, label %alone
take:
  %pair = cmpxchg ptr @busy, i32 0, i32 1 acq_rel monotonic
  %taken = extractvalue {{ i32, i1 }} %pair, 1
  br i1 %taken, label %have, label %alone
alone:
  call void %task(ptr %context, i64 %stop, i64 %count)
  br label %out
have:
  %others = sub i32 %threads, 1
  %threads64 = zext i32 %threads to i64
  %there = call i32 @start(i32 %others)
  %fewer = icmp slt i32 %there, %others
  %helpers = select i1 %fewer, i32 %there, i32 %others
  %parts = mul i64 %threads64, {RANGES_PER_THREAD}
  %part = udiv i64 %rest, %parts
  %none = icmp eq i64 %part, 0
  %step = select i1 %none, i64 1, i64 %part
  store ptr %task, ptr @task
  store ptr %context, ptr @context
  store i64 %stop, ptr @next
  store i64 %count, ptr @end
  store i64 %step, ptr @step
  store atomic i32 %helpers, ptr @running release, align 4
  %old = load i32, ptr @job
  %number = and i32 %old, -256
  %new = add i32 %number, 256
  %word = or i32 %new, %helpers
  store atomic i32 %word, ptr @job release, align 4
  call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr @job, i64 {WAKE}, i32 2147483647)
  call void @share()
  br label %wait
wait:
  %left = load atomic i32, ptr @running acquire, align 4
  %finished = icmp eq i32 %left, 0
  br i1 %finished, label %give, label %sleep
sleep:
  call i64 (i64, ...) @syscall(i64 {FUTEX}, ptr @running, i64 {WAIT}, i32 %left, ptr null)
  br label %wait
give:
  store atomic i32 0, ptr @busy release, align 4
  br label %out
out:
  ret void
}}
"""


@cache
def load() -> engine.Compiled:
    """Compile the functions and make them known; their code stays, for the threads are inside it."""
    symbols.load_libraries()
    compiled = engine.compile_ir(_TEXT, opt=2, name="trident.pool").pin()
    for name in (RUN, THREADS):
        engine.add_symbol(name, compiled.address(name))
    return compiled
