; The structures of xla/ffi/api/c_api.h, which are the same in all releases of interface version 0.
%arrays = type { i64, ptr, i64, ptr, ptr }
%frame = type { i64, ptr, ptr, ptr, i32, %arrays, %arrays }
%buffer = type { i64, ptr, i32, ptr, i64, ptr }
%api = type { i64, ptr, { i64, ptr, i32, i32 }, ptr, [18 x ptr] }
%metadata = type { i64, { i64, ptr, i32, i32 }, i32, i64 }
%extension = type { i64, i32, ptr, ptr }
