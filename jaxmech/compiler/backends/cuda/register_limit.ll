; The largest number of registers of a thread.
!nvvm.annotations = !{!1}
!1 = !{ptr @${name}, !"maxnreg", i32 ${registers}}
