"""The program of an environment that inherits nothing: ``python -m squall.functions.local.fresh``.

`squall.functions.local.strict` starts it, with the channel to the launcher and a file that says
what it is to be as its only descriptors beyond the standard three.
"""

from __future__ import annotations

import os

import msgspec

from squall.functions.local import environment, wire

ENTER_FD = 4
"""Where the `wire.Enter` is read from."""


def move_in() -> environment.Place:
    """Read what this process is to be, and become it."""
    with open(ENTER_FD, "rb") as file:
        file.seek(0)
        enter = msgspec.msgpack.decode(file.read(), type=wire.Enter)
    environment.die_with(enter.launcher)  # once more: a change of credentials ends it
    del os.environ["PYTHONPATH"]  # it only served to find this module
    temp_dir = os.environ["TMPDIR"]
    channel = environment.settle(enter.shape, temp_dir)
    return environment.Place(enter.shape, channel, temp_dir, enter.started)


if __name__ == "__main__":
    environment.live(move_in)
