"""Data sets: readers, partitions, manifests and the iterator that feeds workers.

Nothing is imported here: workers load :mod:`squall.data.iterator` and must stay small.
"""
