"""The launcher's event loop: forks environments, hands them calls, watches over them.

One thread, no waiting but in the selector; every method runs to its end at once.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import selectors
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from squall import procfs
from squall.functions.local import leftovers, wire
from squall.functions.local.environment import Birth
from squall.functions.local.link import ClientLink
from squall.functions.local.memory import MemoryGroup, MemoryLimiter, Watchdog
from squall.functions.local.processes import Environment, Running
from squall.log import get_logger
from squall.records import Outcome, OutcomeKind

TICK_S = 0.02
"""How often running functions are looked at: the precision of timeouts and memory limits."""

_MAX_UNSENT = 4 << 20  # a client that does not read stops the functions' logs at this size
_REAP_S = 5.0  # how long to wait, at the end, for killed processes to disappear
_log = get_logger("squall.functions.local")


class Supervisor:
    """State and event loop.  Every method runs in the one thread there is.

    Parameters
    ----------
    client : ClientLink
        Connection to the client.
    hello : Hello
        Settings.
    home : str
        Folder in which each environment makes its own.
    limiter : MemoryLimiter
        How memory is limited.
    run : callable
        What a forked child goes on with, to be an environment.
    """

    def __init__(
        self,
        client: ClientLink,
        hello: wire.Hello,
        home: str,
        limiter: MemoryLimiter,
        run: Callable[[Birth], NoReturn],
    ) -> None:
        self._client = client
        self._settings = hello
        self._home = home
        self._limiter = limiter
        self._run_environment = run
        self._shapes: dict[int, wire.Prepare] = {}
        self._queue: deque[wire.Invoke] = deque()
        self._environments: dict[int, Environment] = {}  # by process id
        self._running: dict[str, Environment] = {}  # by invocation
        self._warm: dict[int, list[Environment]] = {}  # by shape; the last used is last
        self._dying: list[MemoryGroup] = []
        self._born = 0
        self._next_tick = 0.0
        self._idle_since = time.monotonic()
        self._terminated = False
        self._logs_paused = False
        self._open_files = _raise_open_files()
        self._signals = _wake_on_signals(self._on_terminate)
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Serve until the client closes its end, or until SIGTERM; then end everything."""
        self._watch(self._client, self._on_client)
        self._watch(self._signals, self._on_signal)
        try:
            while not (self._client.closed or self._terminated):
                for key, _ in self._selector.select(self._wait_s()):
                    key.data()
                now = time.monotonic()
                if now >= self._next_tick:
                    self._tick(now)
                self._flush()
        finally:
            self._end_everything()

    def _watch(self, file: int | socket.socket | ClientLink, callback: Callable[[], None]) -> None:
        self._selector.register(file, selectors.EVENT_READ, callback)

    # ------------------------------------------------------------------------- the client

    def _flush(self) -> None:
        """Send what this turn of the loop had to say; what is left waits for the client."""
        before = self._client.unsent
        self._client.flush()
        if before and not self._client.closed:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._client.unsent else 0)
            if self._selector.get_key(self._client).events != events:
                self._selector.modify(self._client, events, self._on_client)
            self._pause_logs(self._client.unsent > _MAX_UNSENT)

    def _pause_logs(self, pause: bool) -> None:
        """Let functions that write too much wait until the client has caught up."""
        if pause == self._logs_paused:
            return
        self._logs_paused = pause
        for environment in self._environments.values():
            if not environment.log_open:
                continue
            if pause:
                self._selector.unregister(environment.log_fd)
            else:
                self._watch_log(environment)

    def _on_client(self) -> None:
        for message in self._client.receive():
            self._obey(message)
        self._start_queued()

    def _obey(self, message: wire.Prepare | wire.Invoke | wire.Cancel) -> None:
        match message:
            case wire.Invoke():
                self._accept(message)
            case wire.Prepare():
                self._shapes[message.key] = message
                if not self._settings.strict:
                    _preload(message.handler)
            case wire.Cancel():
                self._cancel(message.id)

    def _accept(self, call: wire.Invoke) -> None:
        """Queue a call; as clouds do, strict platforms refuse what may not start at once."""
        limit = self._settings.concurrency
        if self._settings.strict and len(self._running) + len(self._queue) >= limit:
            reason = f"{limit:,} functions run already, and no more may"
            self._client.send(wire.End(call.id, Outcome(OutcomeKind.THROTTLED, error=reason)))
        else:
            self._queue.append(call)

    def _cancel(self, call_id: str) -> None:
        if call_id in self._running:
            self._running[call_id].kill(OutcomeKind.KILLED, "cancelled")
            return
        for waiting in self._queue:
            if waiting.id == call_id:
                self._queue.remove(waiting)
                self._client.send(
                    wire.End(call_id, Outcome(OutcomeKind.KILLED, error="cancelled before it started"))
                )
                return

    # ------------------------------------------------------------------------ starting calls

    def _start_queued(self) -> None:
        """Start what may start, first come, first served."""
        while self._queue and len(self._running) < self._settings.concurrency:
            call = self._queue[0]
            try:
                environment = self._take_warm(call.key) or self._fork(self._shapes[call.key])
            except OSError as error:
                if self._make_room():
                    return  # tried again when something has ended
                reason = f"no process could be started: {error}"
                self._client.send(wire.End(call.id, Outcome(OutcomeKind.LOST, error=reason)))
                self._queue.popleft()
                continue
            if environment.send(call.id, call.event):
                self._queue.popleft()
                self._running[call.id] = environment
                self._next_tick = min(self._next_tick, time.monotonic() + TICK_S)

    def _take_warm(self, key: int) -> Environment | None:
        warm = self._warm.get(key)
        return warm.pop() if warm else None

    def _fork(self, shape: wire.Prepare) -> Environment:
        self._born += 1
        limit = shape.memory_mb << 20
        Path(self._home).mkdir(mode=0o700, exist_ok=True)  # something may have tidied it away
        group = self._limiter.group(str(self._born), limit)
        try:
            environment = Environment.fork(shape, group, self._home, self._open_files, self._run_environment)
        except OSError:
            self._dying.append(group)
            raise
        self._environments[environment.pid] = environment
        self._watch(environment.channel.fileno(), lambda: self._on_channel(environment))
        if not self._logs_paused:
            self._watch_log(environment)
        try:
            group.add(environment.pid)
        except OSError as error:  # it worked when it was tried at the start: someone has meddled
            _log.warning("memory is now watched rather than limited by %s: %s", self._limiter.name, error)
            environment.memory = Watchdog().group("", limit)
            self._dying.append(group)
        return environment

    def _watch_log(self, environment: Environment) -> None:
        self._watch(environment.log_fd, lambda: self._on_log(environment))

    def _make_room(self) -> bool:
        """After a failed start: end warm environments.  Whether any end is to be waited for."""
        for warm in self._warm.values():
            while warm:
                warm.pop().kill()
        return bool(self._environments)

    # -------------------------------------------------------------------------- environments

    def _on_channel(self, environment: Environment) -> None:
        if not environment.reaped:  # else it was in this very turn of the loop
            self._listen(environment)

    def _listen(self, environment: Environment) -> None:
        for message in environment.receive():
            match message:
                case wire.Done():
                    self._on_done(environment, message)
                case wire.Loaded():
                    environment.loaded()
                case None:
                    # It is exiting, or has closed or spoiled its channel: no use in either case.
                    self._forget_channel(environment)
                    self._discard(environment)

    def _discard(self, environment: Environment) -> None:
        """Give it no more calls, and end it."""
        warm = self._warm.get(environment.shape.key, [])
        if environment in warm:
            warm.remove(environment)
        environment.kill()

    def _forget_channel(self, environment: Environment) -> None:
        with contextlib.suppress(KeyError):
            self._selector.unregister(environment.channel.fileno())

    def _on_log(self, environment: Environment) -> None:
        if environment.reaped:
            return
        data = environment.read_log()
        if data == b"":
            environment.log_open = False
            self._selector.unregister(environment.log_fd)
        elif data and environment.running is not None:  # else a thread or child left behind: nobody's
            self._client.send(wire.Log(environment.running.id, data))

    def _on_done(self, environment: Environment, done: wire.Done) -> None:
        call = environment.running
        if call is None:
            return
        self._drain_log(environment, call)
        self._end(environment, call, environment.finished(call, done), done.value or b"")
        if done.last:
            environment.kill()
        elif not environment.doomed:
            environment.idle_since = time.monotonic()
            self._warm.setdefault(environment.shape.key, []).append(environment)
        self._start_queued()

    def _end(self, environment: Environment, call: Running, outcome: Outcome, value: bytes = b"") -> None:
        environment.running = None
        del self._running[call.id]
        self._idle_since = time.monotonic()
        self._client.send(wire.End(call.id, outcome, value))

    def _drain_log(self, environment: Environment, call: Running) -> None:
        """Send on what the call has written before it ended; it is all in the pipe by now."""
        for _ in range(16):  # a pipe holds at most 1 MB; a child left behind may go on for ever
            data = environment.read_log()
            if not data:
                return
            self._client.send(wire.Log(call.id, data))

    # -------------------------------------------------------------------------------- deaths

    def _on_terminate(self) -> None:
        self._terminated = True

    def _on_signal(self) -> None:
        self._signals.recv(4096)
        for pid, status in _reap():
            environment = self._environments.pop(pid, None)
            if environment is not None:  # else a process that a function has left behind
                self._bury(environment, status)
        self._start_queued()

    def _bury(self, environment: Environment, status: int) -> None:
        environment.reaped = environment.doomed = True
        self._discard(environment)
        self._listen(environment)  # it may have answered before it died
        call = environment.running
        if call is not None:
            self._drain_log(environment, call)
            self._end(environment, call, environment.died(call, status))
        self._forget(environment)

    def _forget(self, environment: Environment) -> None:
        self._forget_channel(environment)
        with contextlib.suppress(KeyError):
            self._selector.unregister(environment.log_fd)
        environment.dispose()
        if not environment.memory.remove():
            self._dying.append(environment.memory)
            self._next_tick = 0.0

    # --------------------------------------------------------------------------------- time

    def _wait_s(self) -> float:
        return max(0.0, self._next_tick - time.monotonic())

    def _tick(self, now: float) -> None:
        """Look at what runs, end what has been idle for too long, tidy up."""
        for environment in self._running.values():
            environment.look(now)
        self._dying = [group for group in self._dying if not group.remove()]
        expired = self._expire_warm(now - self._settings.idle_s)
        if not self._running and not self._queue and now - self._idle_since >= self._settings.idle_s:
            self._idle_since = now
            self._client.send(wire.Idle())
        pause = TICK_S if self._running or self._dying else max(TICK_S, expired)
        spent = time.monotonic() - now
        self._next_tick = now + spent + max(pause, 4 * spent)  # a thousand functions take a while

    def _expire_warm(self, before: float) -> float:
        """End environments idle since ``before``; return seconds until the next will be."""
        oldest = self._idle_since
        for warm in self._warm.values():
            while warm and warm[0].idle_since <= before:
                warm.pop(0).kill()
            if warm:
                oldest = min(oldest, warm[0].idle_since)
        return oldest - before

    # -------------------------------------------------------------------------------- the end

    def _end_everything(self) -> None:
        """Kill all environments and all they have left behind; give all resources back."""
        for environment in self._environments.values():
            environment.kill()
        give_up = time.monotonic() + _REAP_S
        while time.monotonic() < give_up and not self._reap_all():
            time.sleep(0.001)
        for environment in self._environments.values():
            environment.dispose()
            self._dying.append(environment.memory)
        while self._dying and time.monotonic() < give_up:
            self._dying = [group for group in self._dying if not group.remove()]
            time.sleep(0.001)
        self._limiter.close()
        leftovers.remove_tree(Path(self._home))

    def _reap_all(self) -> bool:
        """Whether no child is left.  As a subreaper the launcher has inherited stray ones."""
        for pid in procfs.children(os.getpid()):
            leftovers.end_process(pid)
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return True
        return False


# ------------------------------------------------------------------------ its own process


def _preload(handler: str) -> None:
    """Import Squall's own handlers here, once, rather than in each environment.

    The user's modules are not: they may start threads, which a forked child would lack.
    """
    module = handler.partition(":")[0]
    if not module.startswith("squall."):
        return
    try:
        importlib.import_module(module)
    except Exception:  # noqa: BLE001 - the environment meets it again, and reports it to the caller
        _log.info("cannot preload %s", module, exc_info=True)


def _raise_open_files() -> tuple[int, int]:
    """Allow this process as many descriptors as it may have; return the limits before."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):  # macOS refuses "unlimited"
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard


def _wake_on_signals(terminate: Callable[[], None]) -> socket.socket:
    """A socket that becomes readable when a child ends or this process is asked to end."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: terminate())
    return reader


def _reap() -> Iterator[tuple[int, int]]:
    """(process id, wait status) of all children that have ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            yield pid, status
