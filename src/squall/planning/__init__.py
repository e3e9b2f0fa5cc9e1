"""Planners (how many functions of what size train, and when that changes), and projections of a job."""
