"""Blocks of members: read `plan`, `kernel`, in this order.

`plan` is a study that was checked, with the sizes that `estimate` chooses, and the memory and disk
that it predicts. `kernel` computes a block, from draws to arrays and statistics.
"""
