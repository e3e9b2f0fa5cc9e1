"""Functions as processes of this machine.

Three processes meet here, each with modules of its own:

* the **client** (``platform``, ``connection``, ``pool``) is the user's Python;
* the **launcher** (``launcher``, ``supervisor``, ``link``, ``processes``, ``memory``,
  ``leftovers``) is one single-threaded process that forks, limits, watches and ends
  environments;
* an **environment** (``environment``) is a forked child that calls handlers, one at a time;
  with ``isolation="strict"`` that child hides the client (``strict``, ``hiding``, with what
  ``readable`` has found) and executes a fresh Python (``fresh``).

``chaos`` wraps this or any other platform and lets its invocations meet faults.
``wire`` holds what they say to each other.
Nothing is imported here: the launcher passes through this package when it starts.
"""
