"""Items made ahead by a process: for work in Python itself, which a thread would take from the loop."""

from __future__ import annotations

import contextlib
import multiprocessing

# join() imports it. If it first did so at exit, CPython would forget that Ctrl-C ended the program.
import multiprocessing.connection
import os
import pickle
import signal
import socket
import struct
import traceback
from typing import Any

from millhead import _core
from millhead.ahead import item_bytes
from millhead.ahead.making import Maker
from millhead.watching.fetch_times import FetchPlan

#: How long ``close`` waits for the process to end by itself, then after a signal.
PATIENCE_S = 2.0
_ITEM, _ERROR, _END = b"i", b"e", b"x"
_SIZE = struct.Struct("<cQ")  # what a message is, and how long


class _Elsewhere(Exception):
    """The traceback of the process, as the cause of what is raised here."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


class ProcessSource:
    """The loop's side."""

    def __init__(self, iterable: Any, n: int, plan: FetchPlan | None, context: str | None) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket = ours
        self._ended = self._closed = False
        self._owner = os.getpid()
        try:
            self._process = multiprocessing.get_context(context).Process(  # type: ignore[attr-defined]
                target=_run,
                args=(iterable, n, plan, theirs, os.getpid()),
                name="millhead-prefetch",
                daemon=True,
            )
            self._process.start()
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            ours.close()
            raise TypeError(
                f"the iterable cannot be sent to a process: {error} (millhead.prefetch): give a "
                "function or an object that can be pickled, context='fork', or mode='thread'"
            ) from error
        finally:
            theirs.close()

    def take(self) -> Any:
        """As :class:`Source` says."""
        if self._ended:
            raise StopIteration
        what, message, descriptor = self._receive()
        try:
            if what == _ITEM:
                item = item_bytes.unpack(message, descriptor)
                self._say_taken()
                return item
            if what == _ERROR:
                self._say_taken()
                error, text = pickle.loads(message)  # by our own child
                raise error from _Elsewhere(text)
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        self._ended = True
        raise StopIteration

    def _receive(self) -> tuple[bytes, bytes, int]:
        head, descriptors, _, _ = socket.recv_fds(self._socket, _SIZE.size, 1)
        descriptor = descriptors[0] if descriptors else -1
        try:
            head += self._exactly(_SIZE.size - len(head)) if head else b""
            if not head:
                raise RuntimeError(self._how_it_ended())
            what, size = _SIZE.unpack(head)
            return what, self._exactly(size), descriptor
        except BaseException:
            if descriptor >= 0:
                os.close(descriptor)
            raise

    def _exactly(self, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._socket.recv(min(size - len(parts), 1 << 20))
            if not part:
                raise RuntimeError(self._how_it_ended())
            parts += part
        return bytes(parts)

    def _say_taken(self) -> None:
        with contextlib.suppress(OSError):  # it has ended: what is left was sent before
            self._socket.sendall(b".")

    def _how_it_ended(self) -> str:
        self._ended = True
        self._process.join(PATIENCE_S)
        code = self._process.exitcode
        how = f"was ended by signal {-code}" if code is not None and code < 0 else f"exited: {code}"
        return (
            f"millhead: the prefetching process {how} (pid {self._process.pid}): see what it printed; "
            "after signal 9 look at memory"
        )

    def close(self) -> None:
        """As :class:`Source` says."""
        self._ended = True
        if self._closed or self._owner != os.getpid():
            return
        self._closed = True
        # It ends when it asks or sends next. Not close alone: processes that were forked meanwhile
        # may have the socket too.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._process.join(PATIENCE_S)
        for end in (self._process.terminate, self._process.kill):
            if self._process.exitcode is None:
                end()
                self._process.join(PATIENCE_S)
        if self._process.exitcode is not None:
            self._process.close()


# ---- the process ---------------------------------------------------------------------------------


def _run(
    iterable: Any, n: int, plan: FetchPlan | None, connection: socket.socket, parent: int
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal tells all: the loop decides
    _core.exit_with(_core.process_open(parent))  # also where the loop is killed
    maker = Maker(iterable, plan)
    room = n
    try:
        while True:
            while room == 0:
                taken = connection.recv(64)
                if not taken:
                    return
                room += len(taken)
            try:
                message, descriptor = item_bytes.pack(maker.make())
                what = _ITEM
            except StopIteration:
                _send(connection, _END, b"", -1)
                return
            except BaseException as error:  # noqa: BLE001 - it is the loop's
                what, message, descriptor = _ERROR, _error_bytes(error), -1
            _send(connection, what, message, descriptor)
            room -= 1
    except (BrokenPipeError, ConnectionResetError):
        pass  # nobody wants more
    finally:
        maker.close()


def _send(connection: socket.socket, what: bytes, message: bytes, descriptor: int) -> None:
    head = _SIZE.pack(what, len(message))
    try:
        if descriptor >= 0:
            socket.send_fds(connection, [head], [descriptor])
        else:
            connection.sendall(head)
        connection.sendall(message)
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _error_bytes(error: BaseException) -> bytes:
    """The exception and its traceback; one that cannot be pickled is a RuntimeError of its text."""
    text = "".join(traceback.format_exception(error))
    try:
        message = pickle.dumps((error, text))
        pickle.loads(message)  # some can be pickled and not be made again
        return message
    except Exception:  # noqa: BLE001 - whatever its class does
        return pickle.dumps((RuntimeError(f"{type(error).__name__}: {error}"), text))
