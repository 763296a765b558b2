; The handler of a kernel for an NVIDIA GPU, which XLA calls with its stream.
; Parameters are filled in by `cuda.py`. The functions of the driver are called by their addresses.

${types}
%request = type { i64, ptr, ptr, ptr }
%error = type { i64, ptr, ptr, i32 }

@unknown = private constant [8 x i8] c"unknown\00"
@loaded = private constant [7 x i8] c"loaded\00"
@started = private constant [8 x i8] c"started\00"
@format = private constant [151 x i8] c"jaxmech: a GPU kernel for %lld trajectories could not be %s: %s (CUDA error %d: %s). Within `jaxmech.compiler.off()` batches run without such kernels.\00"
declare i32 @snprintf(ptr, i64, ptr, ...)

; The error that XLA reports. Codes 2 and 701 of the driver mean too little memory or too few registers.
define internal ptr @failed(ptr %frame, i64 %size, ptr %what, i32 %code) {
entry:
  %name.at = alloca ptr
  %text.at = alloca ptr
  %message = alloca [1024 x i8]
  %error = alloca %error
  store ptr null, ptr %name.at
  store ptr null, ptr %text.at
  call i32 ${cuGetErrorName}(i32 %code, ptr %name.at)
  call i32 ${cuGetErrorString}(i32 %code, ptr %text.at)
  %name.is = load ptr, ptr %name.at
  %text.is = load ptr, ptr %text.at
  %unnamed = icmp eq ptr %name.is, null
  %name = select i1 %unnamed, ptr @unknown, ptr %name.is
  %untold = icmp eq ptr %text.is, null
  %text = select i1 %untold, ptr @unknown, ptr %text.is
  call i32 (ptr, i64, ptr, ...) @snprintf(ptr %message, i64 1024, ptr @format,
    i64 %size, ptr %what, ptr %name, i32 %code, ptr %text)
  %no.memory = icmp eq i32 %code, 2
  %no.registers = icmp eq i32 %code, 701
  %exhausted = or i1 %no.memory, %no.registers
  %kind = select i1 %exhausted, i32 8, i32 13
  store i64 28, ptr %error
  %error.1 = getelementptr %error, ptr %error, i64 0, i32 1
  store ptr null, ptr %error.1
  %error.2 = getelementptr %error, ptr %error, i64 0, i32 2
  store ptr %message, ptr %error.2
  %error.3 = getelementptr %error, ptr %error, i64 0, i32 3
  store i32 %kind, ptr %error.3
  %api.at = getelementptr %frame, ptr %frame, i64 0, i32 2
  %api = load ptr, ptr %api.at
  %create.at = getelementptr %api, ptr %api, i64 0, i32 4, i64 0
  %create = load ptr, ptr %create.at
  %made = call ptr %create(ptr %error)
  ret ptr %made
}

; The handler: stage 2 loads the kernel for the device of the stream, stage 3 starts it. Entry 4 of
; XLA's table of functions looks up the stream. A parameter of a kernel is passed by its address: that of
; an array is the field of XLA's structure that holds it.
define ptr @${name}(ptr %frame) {
entry:
  %request = alloca %request
  %parameters = alloca [${parameters} x ptr]
  %size32 = alloca i32
  %context.at = alloca ptr
  %function.at = alloca ptr
${described}
  switch i32 %stage.is, label %leave [
    i32 2, label %run
    i32 3, label %run
  ]
leave:
  ret ptr null
run:
  %loads = icmp eq i32 %stage.is, 2
  %api.at = getelementptr %frame, ptr %frame, i64 0, i32 2
  %api = load ptr, ptr %api.at
  %owner.at = getelementptr %frame, ptr %frame, i64 0, i32 3
  %owner = load ptr, ptr %owner.at
  store i64 32, ptr %request
  %request.1 = getelementptr %request, ptr %request, i64 0, i32 1
  store ptr null, ptr %request.1
  %request.2 = getelementptr %request, ptr %request, i64 0, i32 2
  store ptr %owner, ptr %request.2
  %request.3 = getelementptr %request, ptr %request, i64 0, i32 3
  store ptr null, ptr %request.3
  %find.at = getelementptr %api, ptr %api, i64 0, i32 4, i64 4
  %find = load ptr, ptr %find.at
  %problem = call ptr %find(ptr %request)
  %refused = icmp ne ptr %problem, null
  br i1 %refused, label %pass, label %found
pass:
  ret ptr %problem
found:
  %stream = load ptr, ptr %request.3
  %args.at = getelementptr %frame, ptr %frame, i64 0, i32 5, i32 4
  %args = load ptr, ptr %args.at
  %rets.at = getelementptr %frame, ptr %frame, i64 0, i32 6, i32 4
  %rets = load ptr, ptr %rets.at
${pointers}
  %dims.at = getelementptr %buffer, ptr %buffer${first_result}, i64 0, i32 5
  %dims = load ptr, ptr %dims.at
  %size = load i64, ptr %dims
  br i1 %loads, label %load, label %start
load:
  %code.1 = call i32 ${cuStreamGetCtx}(ptr %stream, ptr %context.at)
  %bad.1 = icmp ne i32 %code.1, 0
  br i1 %bad.1, label %not.loaded, label %enter
enter:
  %context = load ptr, ptr %context.at
  %code.2 = call i32 ${cuCtxPushCurrent_v2}(ptr %context)
  %bad.2 = icmp ne i32 %code.2, 0
  br i1 %bad.2, label %not.loaded, label %inside
inside:
  %code.3 = call i32 ${cuKernelGetFunction}(ptr %function.at, ptr ${kernel})
  call i32 ${cuCtxPopCurrent_v2}(ptr %context.at)
  %bad.3 = icmp ne i32 %code.3, 0
  br i1 %bad.3, label %not.loaded, label %leave
not.loaded:
  %code.4 = phi i32 [ %code.1, %load ], [ %code.2, %enter ], [ %code.3, %inside ]
  %told.1 = call ptr @failed(ptr %frame, i64 %size, ptr @loaded, i32 %code.4)
  ret ptr %told.1
start:
  %empty = icmp eq i64 %size, 0
  br i1 %empty, label %leave, label %launch
launch:
  %size.trunc = trunc i64 %size to i32
  store i32 %size.trunc, ptr %size32
  store ptr %size32, ptr %parameters
  %up = add i64 %size, ${spare}
  %grid = udiv i64 %up, ${block}
  %grid32 = trunc i64 %grid to i32
  %code = call i32 ${cuLaunchKernel}(ptr ${kernel}, i32 %grid32, i32 1, i32 1, i32 ${block}, i32 1,
    i32 1, i32 0, ptr %stream, ptr %parameters, ptr null)
  %bad = icmp ne i32 %code, 0
  br i1 %bad, label %not.started, label %leave
not.started:
  %told = call ptr @failed(ptr %frame, i64 %size, ptr @started, i32 %code)
  ret ptr %told
}
