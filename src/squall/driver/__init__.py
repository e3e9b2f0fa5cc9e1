"""The client's side of a job: state machine, loop, ledger.

The loop that drives a job is :mod:`squall.driver.loop`; it executes what the state machine
without I/O in :mod:`squall.driver.machine` decides.
"""
