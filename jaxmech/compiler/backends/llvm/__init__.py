"""LLVM assembly for a scalar graph: `lower` walks the graph, `instructions` writes each operation.

`sequences` says where the sequences of a loop lie in memory, and what the loop reads. `builder`
collects the text, and reads what of it stands in `.ll` files. `body` adds loads and stores,
`multiply_add` decides which products are parts of sums, and `trigonometry` is sine and cosine.
`functions` writes the operations of the pieces of a long graph, which are called.
"""
