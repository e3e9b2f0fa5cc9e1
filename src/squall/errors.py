"""Every error that Squall raises on purpose.

Each message says *what* went wrong, *where*, and how to *fix* it.  All derive from
:class:`SquallError`, so one ``except`` catches them; those that mean "bad argument" are
also ``ValueError``, which is what scikit-learn's users expect.
"""

from __future__ import annotations


class SquallError(Exception):
    """Root of all errors that Squall raises on purpose.

    Parameters
    ----------
    what : str
        What went wrong, one sentence without a final full stop.
    where : str, optional
        Where: a file and line, a setting, a worker, an object's name.
    fix : str, optional
        What the user can do about it.
    """

    def __init__(self, what: str, *, where: str | None = None, fix: str | None = None) -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__(what, where, fix)

    def __str__(self) -> str:
        text = self.what if self.where is None else f"{self.where}: {self.what}"
        return text if self.fix is None else f"{text}\n  fix: {self.fix}"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.where, self.fix), self.__dict__


def _rebuild(cls: type[SquallError], what: str, where: str | None, fix: str | None) -> SquallError:
    return cls(what, where=where, fix=fix)


class SettingError(SquallError, ValueError):
    """One or more settings are wrong; all of them are reported at once.

    Attributes
    ----------
    problems : tuple of str
        One text for each, where several were looked at together.
    """

    problems: tuple[str, ...] = ()


class UnknownSettingError(SettingError, TypeError):
    """There is no setting of that name; also a ``TypeError``, as for any unknown argument."""


class DataError(SquallError, ValueError):
    """The input data cannot be used as it is."""


class DataTypeError(DataError, TypeError):
    """A value is of a type that no data is of, such as a dict in a column of numbers."""


class CorruptError(DataError):
    """A stored object is damaged, truncated or of an unknown format version."""


class StoreError(SquallError):
    """The parameter store or the object store refused, or cannot be reached."""


class StoreLostError(StoreError):
    """The parameter store has ended, does not answer, or is cut off."""


class StaleAttemptError(StoreError):
    """An attempt that has been replaced tried to go on; it must stop."""


class StoreFullError(StoreError):
    """The parameter store has no memory left for what it was asked to hold."""


class LostUpdatesError(StoreError):
    """A shard of the parameter store died and came back without its latest updates, or with none.

    Attributes
    ----------
    restored : bool
        Whether it came back with what a snapshot held, so that work can go on from there.
    incarnation : str
        Which of its lives this is; the same for all clients.
    """

    restored: bool = False
    incarnation: str = ""


class PlatformError(SquallError):
    """A function platform cannot do what was asked of it."""


class MissingExtraError(SquallError, ImportError):
    """An optional dependency is not installed."""


class DivergenceError(SquallError, ArithmeticError):
    """The loss became infinite or not a number; names the learning rate and the epoch."""


class SerializationError(SquallError, TypeError):
    """A function, an argument or a result cannot be sent between processes."""


class JobError(SquallError):
    """A job ended without a result."""


class CallError(JobError):
    """A call of `squall.map` ended without a result, and not by an exception of its own.

    Attributes
    ----------
    outcome : str
        How it ended: one of the values of :class:`squall.records.OutcomeKind`, such as
        ``"out of memory"`` or ``"timed out"``.
    """

    outcome: str = ""


class FunctionError(JobError):
    """Code raised inside a function; carries the remote traceback as text.

    Attributes
    ----------
    remote_type : str
        Qualified name of the exception's class there.
    remote_traceback : str
        The traceback as printed there.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        fix: str | None = None,
        remote_type: str = "",
        remote_traceback: str = "",
    ) -> None:
        super().__init__(what, where=where, fix=fix)
        self.remote_type, self.remote_traceback = remote_type, remote_traceback

    def __str__(self) -> str:
        text = super().__str__()
        if not self.remote_traceback:
            return text
        remote = "\n".join("  | " + line for line in self.remote_traceback.rstrip().splitlines())
        return f"{text}\n  traceback inside the function:\n{remote}"
