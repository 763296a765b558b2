"""LLVM assembly for a scalar graph: `lower` walks the graph, `instructions` writes each operation.

`builder` collects the text, `body` adds loads and stores, and `trigonometry` has sine and cosine.
`ffi` holds the structures through which XLA calls the result.
"""
