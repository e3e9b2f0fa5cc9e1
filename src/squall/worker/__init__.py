"""What runs inside a function: entry point, training loop, strategies.

The loop that everything else serves is :mod:`squall.worker.loop`.
"""
