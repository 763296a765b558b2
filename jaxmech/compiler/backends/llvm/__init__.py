"""LLVM assembly for a graph: `lower` goes through it, `instructions` writes each operation.

`builder` collects the text, and `trigonometry` holds sine and cosine.
"""
