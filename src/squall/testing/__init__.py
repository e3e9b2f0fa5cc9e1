"""Contract suites: one for each protocol, to be run on every implementation of it."""
