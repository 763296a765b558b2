"""The interface of XLA's foreign functions: the structures of xla/ffi/api/c_api.h as LLVM types.

They are the same in all releases of interface version 0. A handler reports 0.1, accepted by all.
"""

TYPES = """\
%arrays = type { i64, ptr, i64, ptr, ptr }
%frame = type { i64, ptr, ptr, ptr, i32, %arrays, %arrays }
%buffer = type { i64, ptr, i32, ptr, i64, ptr }
%api = type { i64, ptr, { i64, ptr, i32, i32 }, ptr, [18 x ptr] }
%metadata = type { i64, { i64, ptr, i32, i32 }, i32, i64 }
%extension = type { i64, i32, ptr, ptr }"""
ERROR_CREATE, STREAM_GET, SCHEDULE = 0, 4, 11  # indices in the table of functions
INITIALIZE, EXECUTE = 2, 3  # stages
CAPTURABLE = 1  # trait: the call always starts the same work, which may be recorded and replayed


def described(traits: int) -> str:
    """Write the first lines of a handler, which answer queries and define `%stage.is`."""
    return f"""\
  %extension.at = getelementptr %frame, ptr %frame, i64 0, i32 1
  %extension = load ptr, ptr %extension.at
  %asked = icmp ne ptr %extension, null
  br i1 %asked, label %describe, label %stage
describe:
  %metadata.at = getelementptr %extension, ptr %extension, i64 0, i32 3
  %metadata = load ptr, ptr %metadata.at
  %major.at = getelementptr %metadata, ptr %metadata, i64 0, i32 1, i32 2
  store i32 0, ptr %major.at
  %minor.at = getelementptr %metadata, ptr %metadata, i64 0, i32 1, i32 3
  store i32 1, ptr %minor.at
  %traits.at = getelementptr %metadata, ptr %metadata, i64 0, i32 2
  store i32 {traits}, ptr %traits.at
  ret ptr null
stage:
  %stage.at = getelementptr %frame, ptr %frame, i64 0, i32 4
  %stage.is = load i32, ptr %stage.at"""
