"""LLVM assembly for a scalar graph: `lower` walks the graph, `instructions` writes each operation.

`functions` writes operations with their multiply-adds, and the pieces of a long graph, which are
called; `trigonometry` is sine and cosine. `builder` collects the text, and reads what of it stands
in `.ll` files.
"""
