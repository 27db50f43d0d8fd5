"""`millhead probe URL` against a real web server: nginx, as a process of the test's own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import servers
from helpers.command import COMMAND

SIZE = 20_000_000

LOCATIONS = """\
        location /unranged/ {{ alias {files}/; max_ranges 0; }}
        location /slow/ {{ alias {files}/; limit_rate 100k; }}
        location /moved {{ return 302 /shard.tar?signature=secret; }}
        location /round {{ return 302 /round; }}
        location /busy {{ return 503; }}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a web server with a few files."""
    root = tmp_path_factory.mktemp("nginx")
    files = root / "files"
    files.mkdir()
    (files / "shard.tar").write_bytes(os.urandom(SIZE))
    (files / "short").write_bytes(b"x" * 1000)
    (files / "empty").write_bytes(b"")
    with servers.nginx(root, files, LOCATIONS.format(files=files)) as address:
        yield address


def _run(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
    return subprocess.run(
        [COMMAND, "probe", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment | variables,
    )


def _probe(url: str, *options: object) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The answer, and its tiers by name."""
    done = _run(url, "--seconds", "0.5", "--json", *options)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    return found, {tier["name"]: tier for tier in found["tiers"]}


def _refuses(code: int, *arguments: object, **variables: str) -> str:
    done = _run(*arguments, **variables)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("millhead: ")
    assert " (probe): " in done.stderr
    return done.stderr


def test_large_ranges_tell_the_bandwidth_and_small_ones_the_latency(site: str) -> None:
    found, tiers = _probe(f"{site}/shard.tar")
    network = ["network sequential", "network random", "network requests"]
    assert list(tiers) == ["memory copy", *network, "host to device"]
    assert found["in_flight"] in (1, 4, 16, 64, 256)
    assert found["bytes"] == SIZE
    assert found["network"] == f"http at {site.removeprefix('http://')}"
    large, small = tiers["network sequential"], tiers["network random"]
    assert "of 8 MiB, one after the other" in large["how"]
    assert "of 4 KiB, anywhere" in small["how"]
    assert large["mb_per_s"] > small["mb_per_s"] > 0
    assert large["latency_us"] > small["latency_us"] > 0


def test_no_more_of_the_file_is_used_than_was_allowed(site: str) -> None:
    found, tiers = _probe(f"{site}/shard.tar", "--size", "2MiB")
    assert found["bytes"] == 2 << 20
    assert "of 2 MiB" in tiers["network sequential"]["how"]


def test_the_small_reads_share_one_connection(site: str) -> None:
    """A connection for each would show as ports that wait to be closed."""

    def waiting() -> int:
        port = f":{int(site.rsplit(':', 1)[1]):04X}"
        lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
        return sum(line.split()[2].endswith(port) and line.split()[3] == "06" for line in lines)

    before = waiting()
    _, tiers = _probe(f"{site}/shard.tar")
    assert int(tiers["network random"]["how"].split()[0]) > 20
    side_by_side = 1 + 4 + 16 + 64 + 256
    assert waiting() - before <= 8 + side_by_side  # and there were thousands of reads


def test_a_file_shorter_than_a_piece_is_read_whole(site: str) -> None:
    found, tiers = _probe(f"{site}/short")
    assert found["bytes"] == 1000
    for name in ("network sequential", "network random"):
        assert "reads of 1000 bytes, the whole file" in tiers[name]["how"]
        assert tiers[name]["mb_per_s"] > 0


def test_without_ranges_the_file_is_read_from_its_start_up_to_the_size(site: str) -> None:
    found, tiers = _probe(f"{site}/unranged/shard.tar", "--size", "4MiB")
    assert 4 << 20 <= found["bytes"] < 6 << 20
    assert tiers["network sequential"]["mb_per_s"] > 0
    assert "gives no ranges" in tiers["network sequential"]["how"]
    assert tiers["network random"]["mb_per_s"] is None
    assert tiers["network random"]["how"].startswith("not measured: ")


def test_a_slow_server_is_read_no_longer_than_allowed(site: str) -> None:
    _, tiers = _probe(f"{site}/slow/shard.tar")  # all of it would take 200 s, more than it has
    assert 0 < tiers["network sequential"]["mb_per_s"] < 10
    assert tiers["network sequential"]["latency_us"] is None


def test_redirects_are_followed_and_no_secret_is_shown(site: str) -> None:
    address = site.replace("//", "//user:password@") + "/moved?token=secret"
    done = _run(address, "--seconds", "0.5", "--json")
    assert json.loads(done.stdout)["file"] == f"{site}/shard.tar"
    for shown in (done, _run(address, "--seconds", "0.5")):
        assert "secret" not in shown.stdout + shown.stderr
        assert "password" not in shown.stdout + shown.stderr
    assert "redirects" in _refuses(1, f"{site}/round")


def test_answers_that_are_no_file_are_named(site: str) -> None:
    assert "answers 404" in _refuses(1, f"{site}/nowhere")
    assert "answers 503" in _refuses(1, f"{site}/busy")
    assert "is empty" in _refuses(1, f"{site}/empty")
    assert "is empty" in _refuses(1, f"{site}/unranged/empty")
    assert "see millhead probe --help" in _refuses(2, f"{site}/shard.tar", "--size", "1kB")


def test_it_can_be_interrupted(site: str) -> None:
    with subprocess.Popen(
        [COMMAND, "probe", f"{site}/slow/shard.tar", "--seconds", "600"]
    ) as child:
        time.sleep(1)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=20) == -signal.SIGINT


def test_nobody_there_is_said() -> None:
    assert "Failed to connect" in _refuses(1, f"http://127.0.0.1:{servers.free_port()}/file")


def test_a_server_that_says_nothing_is_not_waited_for_without_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert "no answer for 10 seconds" in _refuses(1, f"http://127.0.0.1:{port}/file")


def test_other_schemes_are_refused() -> None:
    for url in ("ftp://host/shard.tar", "file:///etc/hostname", "gs://bucket/x"):
        message = _refuses(2, url)
        assert "is not supported" in message
        assert "mount it and give the path" in message


def test_without_libcurl_the_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "libcurl.so.4").write_bytes(b"")  # found first, and no library
    message = _refuses(1, "http://127.0.0.1/file", LD_LIBRARY_PATH=str(tmp_path))
    assert "install the package libcurl4" in message
