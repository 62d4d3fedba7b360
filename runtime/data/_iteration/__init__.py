"""How a consumer's process makes batches of blocks: threads that run ahead, tensors, positions.

Imports `_block`, and nothing of plans or executions.
"""
