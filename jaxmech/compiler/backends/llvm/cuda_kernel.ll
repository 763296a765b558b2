; A kernel for an NVIDIA GPU: every thread loops over trajectories with the stride of the grid.
; Parameters are filled in by `cuda.py`.

${tables}
${declared}
; Registers of the hardware, which hold the index of a thread.
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
declare i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()

; The weights keep rare cases out of the way. The largest number of threads is not stated: ptxas would
; spill rather than use a few more registers.
!0 = !{!"branch_weights", i32 1, i32 1000}

define ptx_kernel void @${name}(i32 %size, ${arrays}) nounwind {
entry:
  %scratch = alloca [${scratch} x i8], align 16
  %thread32 = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %threads32 = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()
  %block32 = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %blocks32 = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()
  %thread = zext i32 %thread32 to i64
  %threads = zext i32 %threads32 to i64
  %block = zext i32 %block32 to i64
  %blocks = zext i32 %blocks32 to i64
  %before = mul i64 %block, %threads
  %first = add i64 %before, %thread
  %grid = mul i64 %blocks, %threads
  %count = zext i32 %size to i64
  %any = icmp ult i64 %first, %count
  br i1 %any, label %body, label %end
body:
  %trajectory = phi i64 [ %first, %entry ], [ %following, %${last} ]
${lines}
  %following = add i64 %trajectory, %grid
  %more = icmp ult i64 %following, %count
  br i1 %more, label %body, label %end
end:
  ret void
}
