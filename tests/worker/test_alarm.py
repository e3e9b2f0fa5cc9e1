"""A process ends when its time is over, whatever it does."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, signal, sys, time
from squall.worker import alarm

def wait():
    time.sleep(60)
def stop():
    os.kill(os.getpid(), signal.SIGSTOP)
    wait()
def block():
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    wait()
def use_alarms():
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.alarm(0)
    wait()
def in_c_code():
    sum(range(10**15))
def in_time():
    alarm.disarm()
    alarm.arm(30)
    alarm.disarm()
    time.sleep(1.5)  # longer than it would have had
    os._exit(5)
def in_a_child():
    pid = os.fork()
    if not pid:
        alarm.arm(0.1)
        wait()
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os._exit(6 if ended == -signal.SIGVTALRM else 7)

alarm.arm(30 if sys.argv[1] == "in_a_child" else 0.1)
locals()[sys.argv[1]]()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere an alarm can be blocked")
@pytest.mark.parametrize(
    ("what", "code"),
    [
        ("wait", -signal.SIGVTALRM),
        ("stop", -signal.SIGVTALRM),
        ("block", -signal.SIGKILL),
        ("use_alarms", -signal.SIGVTALRM),
        ("in_c_code", -signal.SIGVTALRM),
        ("in_time", 5),
        ("in_a_child", 6),
    ],
)
def test_the_end_comes_in_time(what: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, what], timeout=30, check=False)
    assert done.returncode == code
