; The module of a kernel for the CPU: the code of one block of trajectories, and the handler that XLA
; calls, which distributes the blocks over the threads of XLA. Parameters are filled in by `cpu.py`.

${types}
%schedule = type { i64, ptr, ptr, ptr, ptr }
; What all threads of a call share: next block, blocks done, threads that hold it, number of blocks,
; blocks to take at a time, and the addresses of all arrays.
%state = type { i64, i64, i64, i64, i64, [${arrays} x ptr] }

${tables}
${declared}
declare ptr @malloc(i64)
declare void @free(ptr)
declare i32 @sched_yield()
declare i32 @madvise(ptr, i64, i32)

; The weights keep rare cases out of the way.
!0 = !{!"branch_weights", i32 1, i32 1000}

${functions}

; The attributes: without the last two, vectors spilled to the stack lie across cache lines in most runs.
define internal void @block(ptr %state, i64 %block, ptr %scratch) "prefer-vector-width"="512" nounwind "stackrealign" "frame-pointer"="all" {
${lines}
}

; Take and compute shares of the blocks until none is left.
define internal void @work(ptr %state) "prefer-vector-width"="512" nounwind "stackrealign" "frame-pointer"="all" {
entry:
  %memory = call ptr @malloc(i64 ${scratch})
  %address = ptrtoint ptr %memory to i64
  %up = add i64 %address, 63
  %even = and i64 %up, -64
  %scratch = inttoptr i64 %even to ptr
  %count.at = getelementptr %state, ptr %state, i64 0, i32 3
  %count = load i64, ptr %count.at
  %share.at = getelementptr %state, ptr %state, i64 0, i32 4
  %share = load i64, ptr %share.at
  %done.at = getelementptr %state, ptr %state, i64 0, i32 1
  br label %take
take:
  %first = atomicrmw add ptr %state, i64 %share acq_rel
  %more = icmp ult i64 %first, %count
  br i1 %more, label %some, label %end
some:
  %last = add i64 %first, %share
  %within = icmp ult i64 %last, %count
  %stop = select i1 %within, i64 %last, i64 %count
  br label %each
each:
  %b = phi i64 [ %first, %some ], [ %next, %each ]
  call void @block(ptr %state, i64 %b, ptr %scratch)
  %next = add i64 %b, 1
  %again = icmp ult i64 %next, %stop
  br i1 %again, label %each, label %told
told:
  %finished = sub i64 %stop, %first
  %before = atomicrmw add ptr %done.at, i64 %finished acq_rel
  br label %take
end:
  call void @free(ptr %memory)
  ret void
}

; The last thread to release the state frees it: a helper may begin when the call has long returned.
; Then it finds no block, and the state must still exist.
define internal void @release(ptr %state) {
entry:
  %held.at = getelementptr %state, ptr %state, i64 0, i32 2
  %held = atomicrmw sub ptr %held.at, i64 1 acq_rel
  %last = icmp eq i64 %held, 1
  br i1 %last, label %gone, label %end
gone:
  call void @free(ptr %state)
  br label %end
end:
  ret void
}

; What a helper runs.
define internal void @task(ptr %state) {
entry:
  call void @work(ptr %state)
  call void @release(ptr %state)
  ret void
}

; Large results are requested in large pages (advice 14 of Linux, elsewhere refused without harm): most
; of the time of a run that saves every state went into the first touch of small ones.
define internal void @large_pages(ptr %memory, i64 %bytes) {
entry:
  %large = icmp uge i64 %bytes, 4194304
  br i1 %large, label %advise, label %end
advise:
  %from = ptrtoint ptr %memory to i64
  %up = add i64 %from, 4095
  %first = and i64 %up, -4096
  %past = add i64 %from, %bytes
  %length = sub i64 %past, %first
  %page = inttoptr i64 %first to ptr
  %ignored = call i32 @madvise(ptr %page, i64 %length, i32 14)
  br label %end
end:
  ret void
}

; The handler. It asks for helpers (entry 11 of XLA's table of functions schedules a task), takes part
; itself, and waits for blocks, never for helpers.
define ptr @${name}(ptr %frame) {
entry:
${described}
  ; Stage 3 executes the call.
  %execute = icmp eq i32 %stage.is, 3
  br i1 %execute, label %run, label %leave
leave:
  ret ptr null
run:
  %state = call ptr @malloc(i64 ${state_bytes})
  %args.at = getelementptr %frame, ptr %frame, i64 0, i32 5, i32 4
  %args = load ptr, ptr %args.at
  %rets.at = getelementptr %frame, ptr %frame, i64 0, i32 6, i32 4
  %rets = load ptr, ptr %rets.at
${copies}
  %size.pointer = load ptr, ptr %array0
  %size32 = load i32, ptr %size.pointer
  %size = zext i32 %size32 to i64
  %size.up = add i64 %size, ${spare_lanes}
  %count = udiv i64 %size.up, ${lanes}
${advice}
  %pieces = udiv i64 %count, ${pieces}
  %least = icmp ugt i64 %pieces, 1
  %share = select i1 %least, i64 %pieces, i64 1
  store i64 0, ptr %state
  %done.at = getelementptr %state, ptr %state, i64 0, i32 1
  store i64 0, ptr %done.at
  %held.at = getelementptr %state, ptr %state, i64 0, i32 2
  store i64 1, ptr %held.at
  %count.at = getelementptr %state, ptr %state, i64 0, i32 3
  store i64 %count, ptr %count.at
  %share.at = getelementptr %state, ptr %state, i64 0, i32 4
  store i64 %share, ptr %share.at
  %api.pointer = getelementptr %frame, ptr %frame, i64 0, i32 2
  %api = load ptr, ptr %api.pointer
  %schedule.at = getelementptr %api, ptr %api, i64 0, i32 4, i64 11
  %schedule = load ptr, ptr %schedule.at
  %context.at = getelementptr %frame, ptr %frame, i64 0, i32 3
  %context = load ptr, ptr %context.at
  %request = alloca %schedule
  store i64 40, ptr %request
  %request.1 = getelementptr %schedule, ptr %request, i64 0, i32 1
  store ptr null, ptr %request.1
  %request.2 = getelementptr %schedule, ptr %request, i64 0, i32 2
  store ptr %context, ptr %request.2
  %request.3 = getelementptr %schedule, ptr %request, i64 0, i32 3
  store ptr @task, ptr %request.3
  %request.4 = getelementptr %schedule, ptr %request, i64 0, i32 4
  store ptr %state, ptr %request.4
  %spare = sub i64 %count, 1
  %enough = icmp ult i64 %spare, ${helpers}
  %wanted = select i1 %enough, i64 %spare, i64 ${helpers}
  br label %ask
ask:
  %k = phi i64 [ 0, %run ], [ %k.next, %next ]
  %all = icmp uge i64 %k, %wanted
  br i1 %all, label %own, label %one
one:
  %held.before = atomicrmw add ptr %held.at, i64 1 acq_rel
  %problem = call ptr %schedule(ptr %request)
  %refused = icmp ne ptr %problem, null
  br i1 %refused, label %back, label %next
back:
  call void @release(ptr %state)
  br label %next
next:
  %k.next = add i64 %k, 1
  br label %ask
own:
  call void @work(ptr %state)
  br label %wait
wait:
  %done = load atomic i64, ptr %done.at acquire, align 8
  %complete = icmp eq i64 %done, %count
  br i1 %complete, label %end, label %yield
yield:
  %ignored = call i32 @sched_yield()
  br label %wait
end:
  call void @release(ptr %state)
  ret ptr null
}
