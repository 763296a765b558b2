  ; A handler that is asked describes itself: version 0.1 of the interface, and its traits.
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
  store i32 ${traits}, ptr %traits.at
  ret ptr null
stage:
  %stage.at = getelementptr %frame, ptr %frame, i64 0, i32 4
  %stage.is = load i32, ptr %stage.at
