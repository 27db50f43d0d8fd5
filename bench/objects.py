"""Whole objects over a slow link: millhead's source beside libcurl alone.

usage: bench/objects.py [--rounds N] [--count N] [--in-flight N] [--bytes N] [--latency MS]

Files from nginx (`make web-server`) behind `delay.c`. In every round all arms run, one after the
other: libcurl alone, throwing the bytes away or copying them to their places
(limits/objects.c), and millhead's S3 source with signed requests (objects.c), over HTTP and over TLS,
and filling a disk cache. Prints a Markdown table of medians.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

BENCH = Path(__file__).resolve().parent
ROOT = BENCH.parent
sys.path.insert(0, str(ROOT / "tests" / "python"))
from helpers import servers

#: objects.c and limits/objects.c ask for so many names.
KEYS = 2000
CODECS = ("jpeg", "png", "zstd", "lz4", "deflate", "blosc")


def build(out: Path) -> None:
    compiler = ["cc", "-O2"]
    subprocess.run([*compiler, BENCH / "delay.c", "-o", out / "delay"], check=True)
    subprocess.run(
        [*compiler, BENCH / "limits" / "objects.c", "-lcurl", "-o", out / "bare"], check=True
    )
    core = ROOT / "build" / "src"
    command = [
        *compiler,
        "-D_GNU_SOURCE",
        *(f"-I{ROOT / part}" for part in ("src", "include", "build/src")),
    ]
    command += [BENCH / "objects.c", core / "libmillhead-core.a", "-lm", "-lpthread"]
    subprocess.run([*command, *(f"-l{name}" for name in CODECS), "-o", out / "objects"], check=True)
    shutil.copy(core / "libmillhead-net.so", out)


def make_certificate(out: Path) -> tuple[Path, Path]:
    certificate, key = out / "certificate.pem", out / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
    command += " -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(
        [*command.split(), "-out", certificate, "-keyout", key], check=True, capture_output=True
    )
    return certificate, key


def place(out: Path, name: str) -> Path:
    made = out / name
    made.mkdir()
    return made


def link(stack: ExitStack, out: Path, address: str, latency_ms: float) -> str:
    """The address of a slow way to that server."""
    scheme, _, port = address.rpartition(":")
    own = servers.free_port()
    command = [out / "delay", str(own), port, str(latency_ms), out / f"counts-{own}"]
    process = subprocess.Popen(command)
    stack.callback(process.terminate)
    servers.wait_for(own, process)
    return f"{scheme}:{own}"


def arms(out: Path, http: str, tls: str, ca: Path, o: argparse.Namespace) -> dict[str, list[str]]:
    numbers = [str(o.count), str(o.bytes), str(o.in_flight)]

    def bare(address: str, *more: str) -> list[str]:
        return [str(out / "bare"), f"{address}/bucket/object", *numbers, *more]

    def ours(address: str, *more: str, count: int = o.count) -> list[str]:
        storage = f"endpoint_url={address},key={servers.KEY},secret={servers.SECRET},style=path"
        storage += f",region=us-east-1,ca_file={ca}"
        return [
            str(out / "objects"),
            "s3://bucket/object",
            str(count),
            *numbers[1:],
            storage,
            *more,
        ]

    return {
        "HTTP, libcurl alone, bytes dropped": bare(http, "drop"),
        "HTTP, libcurl alone, bytes copied": bare(http, "copy"),
        "HTTP, millhead": ours(http),
        "TLS, libcurl alone, bytes dropped": bare(tls, "drop", str(ca)),
        "TLS, millhead": ours(tls),
        "HTTP, millhead, filling the cache": ours(
            http, f"{out}/cache:100GB", count=min(o.count, KEYS)
        ),
    }


def run(command: list[str], out: Path) -> dict[str, Any]:
    shutil.rmtree(out / "cache", ignore_errors=True)
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command[:3])}: {ended.stderr}{ended.stdout}")
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def show(results: dict[str, list[dict[str, Any]]], options: argparse.Namespace) -> None:
    limit = options.in_flight / (options.latency * 1e-3)
    print("| arm | objects/s | of the limit | CPU µs an object | lowest to highest |")
    print("|---|---|---|---|---|")
    for name, rounds in results.items():
        rate, cpu = median(r["rate"] for r in rounds), sorted(r["cpu_us"] for r in rounds)
        print(
            f"| {name} | {rate:.0f} | {rate / limit:.3f} | {median(cpu):.1f} "
            f"| {cpu[0]:.1f} to {cpu[-1]:.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--count", type=int, default=2 * KEYS)
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--bytes", type=int, default=110_000)
    parser.add_argument("--latency", type=float, default=30.0, metavar="MS")
    options = parser.parse_args()
    with ExitStack() as stack:
        out = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        build(out)
        (out / "files" / "bucket").mkdir(parents=True)
        for number in range(KEYS):
            (out / f"files/bucket/object{number:06d}.jpg").write_bytes(bytes(options.bytes))
        pair = make_certificate(out)
        http, tls = (
            link(stack, out, stack.enter_context(server), options.latency)
            for server in (
                servers.nginx(place(out, "http"), out / "files"),
                servers.nginx(place(out, "tls"), out / "files", certificate=pair),
            )
        )
        commands = arms(out, http, tls, pair[0], options)
        results: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
        for _ in range(options.rounds):
            for name, command in commands.items():
                results[name].append(run(command, out))
        show(results, options)


if __name__ == "__main__":
    main()
