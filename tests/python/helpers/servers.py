"""Real servers for tests, each a process of the test's own on a port of loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which

#: Of `make test`, else the machine's.
_ROOT = Path(__file__).resolve().parents[3]
_PLACES = [str(_ROOT / "build/web/usr/sbin"), os.environ.get("PATH", ""), "/usr/sbin"]
NGINX = which("nginx", path=os.pathsep.join(_PLACES))
RCLONE = Path(sysconfig.get_path("scripts")) / "rclone"

#: What the S3 server of the tests knows.
KEY, SECRET = "AKIAMILLHEADTEST0001", "tests/only+secret=0123456789abcdef"

_NGINX = """\
daemon off;
user root root;
pid {root}/pid;
error_log {root}/errors;
worker_processes 1;
events {{ worker_connections 1024; }}
http {{
    log_format short '$request_method $uri $http_range $status';
    access_log {root}/access short;
    keepalive_requests 1000000;
    client_body_temp_path {root}/body;
    proxy_temp_path {root}/proxy;
    fastcgi_temp_path {root}/fastcgi;
    uwsgi_temp_path {root}/uwsgi;
    scgi_temp_path {root}/scgi;
    server {{
        listen 127.0.0.1:{port}{ssl};
        {certificate}
        root {files};
        {locations}
    }}
}}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def _process(command: Sequence[str | Path], port: int, **keywords: object) -> Iterator[None]:
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        **keywords,  # type: ignore[call-overload]
    ) as server:
        try:
            wait_for(port, server)
            yield
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(20)


def wait_for(port: int, server: subprocess.Popen[bytes]) -> None:
    """Until something listens there; an error once the server has ended."""
    until = time.monotonic() + 30
    while time.monotonic() < until and server.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.02)
    raise AssertionError(f"the server does not answer (exit code {server.poll()})")


@contextmanager
def nginx(
    root: Path, files: Path, locations: str = "", certificate: tuple[Path, Path] | None = None
) -> Iterator[str]:
    """A web server over ``files``; with a certificate and its key it speaks TLS. Gives its address;
    the requests it saw are lines of ``root / "access"``."""
    assert NGINX, "needs nginx (make web-server)"
    port = free_port()
    lines = ""
    if certificate:
        lines = f"ssl_certificate {certificate[0]}; ssl_certificate_key {certificate[1]};"
    config = _NGINX.format(
        root=root,
        files=files,
        port=port,
        locations=locations,
        ssl=" ssl" if certificate else "",
        certificate=lines,
    )
    (root / "nginx.conf").write_text(config)
    with _process([NGINX, "-c", root / "nginx.conf", "-p", root], port):
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{port}"


@contextmanager
def s3(root: Path) -> Iterator[str]:
    """An S3 server that checks signatures: directories of ``root`` are its buckets."""
    port = free_port()
    command = [RCLONE, "serve", "s3", "--addr", f"127.0.0.1:{port}"]
    command += ["--auth-key", f"{KEY},{SECRET}", "--vfs-cache-mode", "off", "--no-checksum", root]
    home = root.parent / "rclone-home"
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "RCLONE_CONFIG": "/dev/null"}
    with _process(command, port, env=environment):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def moto() -> Iterator[str]:
    """Amazon's S3, IAM and STS: AWS's own errors. It starts without any check of who is asking."""
    port = free_port()
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with _process(command, port, env=environment):
        yield f"http://127.0.0.1:{port}"
