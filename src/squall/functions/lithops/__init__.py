"""Functions by Lithops: on whatever it reaches (AWS, Google, Azure, Alibaba, Kubernetes, …).

:mod:`~squall.functions.lithops.platform` is the client's side; :mod:`~squall.functions.lithops.inside`
is what Lithops calls in its workers.
"""
