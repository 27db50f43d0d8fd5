"""A web server that does as it is told: faults by the number of a request.

It serves objects from memory with ranges and ETags, counts requests, and asks a plan what to do
with each. What it does wrong is what proxies, stores and networks do wrong.
"""

from __future__ import annotations

import hashlib
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

#: Gives the fault of request number n (from 0) for a path, or None.
Plan = Callable[[int, str], str | None]

#: Every fault there is; those after "stall" never pass by themselves.
FAULTS = [
    "503",
    "500",
    "429-after-1",
    "reset",
    "cut-header",
    "cut-body",
    "short",
    "wrong-range",
    "whole",
    "gzip",
    "garbage",
    "stall",
    "drip",
]


@dataclass
class Server:
    objects: dict[str, bytes]
    plan: Plan
    address: str = ""
    requests: list[tuple[str, str | None]] = field(default_factory=list)  # (path, range)
    etags: dict[bytes, str] = field(default_factory=dict)
    latency_s: float = 0.0
    under_way: int = 0
    under_way_most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def etag_of(self, data: bytes) -> str:
        """Computed once: of 80 MB it takes longer than all the rest of a request."""
        if data not in self.etags:
            self.etags[data] = hashlib.md5(data).hexdigest()
        return self.etags[data]


def _read_request(
    connection: socket.socket, left: bytes
) -> tuple[str, dict[str, str], bytes] | None:
    while b"\r\n\r\n" not in left:
        more = connection.recv(65536)
        if not more:
            return None
        left += more
    head, left = left.split(b"\r\n\r\n", 1)
    lines = head.decode("latin-1").split("\r\n")
    headers = {
        k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])
    }
    return lines[0].split(" ")[1].partition("?")[0], headers, left


def _reset(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _status(connection: socket.socket, status: str, *headers: str, body: bytes = b"") -> None:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def _answer(
    server: Server, connection: socket.socket, path: str, asked: str | None, fault: str | None
) -> bool:
    """Whether the connection goes on."""
    data = server.objects.get(path)
    if data is None:
        _status(connection, "404 Not Found")
        return True
    first, last, status = 0, len(data) - 1, "200 OK"
    found = re.fullmatch(r"bytes=(\d+)-(\d*)", asked or "")
    if found and fault != "whole":
        first = int(found[1])
        last = min(int(found[2] or last), last)
        status = "206 Partial Content"
        if first > last:
            _status(connection, "416 Range Not Satisfiable", f"Content-Range: bytes */{len(data)}")
            return True
    body = data[first : last + 1]
    shift = 1 if fault == "wrong-range" else 0
    lines = [f"HTTP/1.1 {status}", f'ETag: "{server.etag_of(data)}"']
    if status.startswith("206"):
        lines.append(f"Content-Range: bytes {first + shift}-{last + shift}/{len(data)}")
    if fault == "gzip":
        lines.append("Content-Encoding: gzip")
    if fault == "short":
        body = body[: len(body) // 2]
    lines.append(f"Content-Length: {len(body)}")
    head = "\r\n".join(lines).encode() + b"\r\n\r\n"
    if fault == "cut-header":
        connection.sendall(head[: len(head) // 2])
        return False
    if fault == "cut-body":
        connection.sendall(head + body[: len(body) // 2])
        return False
    if fault == "drip":
        connection.sendall(head)
        for byte in body:
            connection.sendall(bytes([byte]))
            time.sleep(0.2)
        return True
    connection.sendall(head + body)
    return True


def _one(server: Server, connection: socket.socket, path: str, headers: dict[str, str]) -> bool:
    with server.lock:
        number = len(server.requests)
        server.requests.append((path, headers.get("range")))
        server.under_way += 1
        server.under_way_most = max(server.under_way_most, server.under_way)
    try:
        fault = server.plan(number, path)
        time.sleep(server.latency_s)
        if fault == "503":
            _status(connection, "503 Slow Down")
        elif fault == "500":
            _status(connection, "500 Internal Server Error")
        elif fault == "429-after-1":
            _status(connection, "429 Too Many Requests", "Retry-After: 1")
        elif fault == "reset":
            _reset(connection)
            return False
        elif fault == "garbage":
            connection.sendall(b"\x16\x03\x01 what is this?\r\n\r\n")
            return False
        elif fault == "stall":
            time.sleep(3)
            return False
        else:
            return _answer(server, connection, path, headers.get("range"), fault)
        return True
    finally:
        with server.lock:
            server.under_way -= 1


def _serve(server: Server, connection: socket.socket) -> None:
    left = b""
    try:
        with connection:
            while (request := _read_request(connection, left)) is not None:
                path, headers, left = request
                if not _one(server, connection, path, headers):
                    return
    except OSError:
        pass  # the client went away


@contextmanager
def fault_server(
    objects: dict[str, bytes], plan: Plan = lambda number, path: None
) -> Iterator[Server]:
    server = Server(objects, plan)
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        server.address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        threads = []

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                thread = threading.Thread(target=_serve, args=(server, connection), daemon=True)
                thread.start()
                threads.append(thread)

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield server
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join(10)
            for thread in threads:
                thread.join(10)
