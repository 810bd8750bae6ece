"""A clock that wakes a waiting process to the microsecond.

`epoll` and asyncio wait in whole milliseconds, which would send every request half a millisecond late. The kernel's
`timerfd` does not. (Python has it as `os.timerfd_create` from 3.13 on.)
"""

import ctypes
import os
import time

_CLOCK_MONOTONIC = 1  # what `time.monotonic` reads
_ABSOLUTE = 1
_NONBLOCK = os.O_NONBLOCK
_CLOSE_ON_EXEC = os.O_CLOEXEC


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Timer:
    """A file descriptor that becomes readable at a time of `time.monotonic`."""

    def __init__(self) -> None:
        """Raises `OSError` where the kernel has no such timer."""
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = int(self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK | _CLOSE_ON_EXEC))
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._set_to_s = 0.0

    def wake_at(self, time_s: float) -> None:
        """Become readable at `time_s`, at once where that has passed. Replaces what was set before."""
        if time_s == self._set_to_s:
            return
        self._set_to_s = time_s
        whole = int(time_s)
        value = _Timespec(whole, max(1, int(1e9 * (time_s - whole))))  # zero would switch it off
        if self._libc.timerfd_settime(self.fd, _ABSOLUTE, ctypes.byref(_Setting(_Timespec(0, 0), value)), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def clear(self) -> None:
        """Take note that it went off."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return
        self._set_to_s = 0.0

    def close(self) -> None:
        os.close(self.fd)


def now_s() -> float:
    """The clock of all times of a trial; it never jumps."""
    return time.monotonic()
