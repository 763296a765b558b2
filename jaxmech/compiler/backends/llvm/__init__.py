"""LLVM assembly for a scalar graph: `lower` walks the graph, `instructions` writes each operation.

`builder` collects the text, `body` adds loads and stores, `multiply_add` decides which products are
parts of sums, and `trigonometry` is sine and cosine. `operations` writes operations one by one, and
`functions` those of the pieces of a long graph, which are called.
`ffi` defines the structures through which XLA calls the result, and `template` reads text of LLVM
that stands in `.ll` files.
"""
