"""From a forked child of the launcher to a fresh Python that has nothing of the client's.

Nothing of the launcher's memory, descriptors, variables and working folder comes through the
exec; `hiding` takes care of files, sockets and processes.
"""

from __future__ import annotations

import os
import resource
import sys
import traceback
from pathlib import Path
from typing import NoReturn

import squall
from squall.functions.local import environment, fresh, hiding, wire

_MODULE = "squall.functions.local.fresh"
_FIXED = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONDONTWRITEBYTECODE": "1",  # there is nowhere to write it
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "SQUALL_ISOLATION": "strict",
}


def run(birth: environment.Birth, hides: hiding.Hides, temp_mb: int) -> NoReturn:
    """(in a forked child of the launcher) Become a fresh Python; never returns."""
    try:
        environment.leave_launcher(birth)
        _leave_note(birth)
        temp_dir = environment.make_temp_dir(birth.home)
        if hides.files:
            temp_dir = hiding.hide_files(temp_dir, birth.shape.readable, temp_mb)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (temp_mb << 20, temp_mb << 20))
        if hides.processes:
            hiding.hide_processes()
        hiding.give_up_privileges()
        os.umask(0o022)
        os.chdir(temp_dir)
        os.execve(sys.executable, [sys.executable, "-P", "-m", _MODULE], _variables(birth.shape, temp_dir))
    except BaseException:  # noqa: BLE001 - this is the process's outermost frame
        os.write(2, traceback.format_exc().encode(errors="replace"))
    finally:
        os._exit(environment.NOT_SET_UP)


def _leave_note(birth: environment.Birth) -> None:
    """What the new program needs to know, in a file without a name."""
    note = os.memfd_create("squall-enter")  # its number is 4 already, or is made so
    os.write(note, wire.encode(wire.Enter(birth.shape, birth.started, birth.launcher)))
    if note != fresh.ENTER_FD:
        os.dup2(note, fresh.ENTER_FD)
        os.close(note)
    for fd in (environment.CHANNEL_FD, fresh.ENTER_FD):
        os.set_inheritable(fd, True)


def _variables(shape: wire.Prepare, temp_dir: str) -> dict[str, str]:
    """All environment variables of the new program."""
    source = str(Path(squall.__file__).resolve().parents[1])
    own = {"TMPDIR": temp_dir, "HOME": temp_dir, "PYTHONPATH": source}
    return {**_FIXED, **shape.variables, **own}
