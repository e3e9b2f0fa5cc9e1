"""Platforms on which functions run: the client's side of each, and what it starts."""
