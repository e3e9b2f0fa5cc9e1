"""Virtual platforms: the driver's real core on functions that do not exist, in virtual time.

A :class:`~squall.simulation.scenario.Scenario` is a job, a platform and the faults that it will
meet, as plain data; :func:`~squall.simulation.job.simulate` plays it, always in the same way.
Nothing here decides what a job does: that is :class:`squall.driver.machine.JobMachine`,
fed in the order of :class:`squall.driver.arrivals.Arrivals`, and who owns a slot is told by
:class:`squall.store.control.ControlCore`.  Only functions, clocks and the way between them are models.
"""
