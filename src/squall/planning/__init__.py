"""Planners: how many functions of what size train, and when that changes."""
