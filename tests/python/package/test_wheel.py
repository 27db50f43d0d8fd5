"""The wheel that `make wheel` makes runs elsewhere: where there is torch, and nothing of ours."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import millhead
import pytest
from elftools.elf.elffile import ELFFile
from millhead import _core

ROOT = Path(__file__).resolve().parents[3]
SNIPPETS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
# What pip says when a package is to be had from nowhere
_NOT_TO_BE_HAD = ("No matching distribution found", "NewConnectionError", "ConnectTimeoutError")


def _run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs a command that knows nothing of this process's Python."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MAKE"))}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        env=environment,
        **options,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The only wheel that the recipe of `make wheel` leaves."""
    dist = tmp_path_factory.mktemp("dist")
    done = _run("make", "-s", "portable-wheel", f"DIST={dist}", cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = dist.iterdir()
    return made


def _runtime_pins() -> list[str]:
    """Torch and what it needs, as requirements.txt pins them; numpy is no part of that."""
    text = (ROOT / "requirements.txt").read_text()
    section = re.search(r"^# runtime:.*\n((?:[^#\n].*\n)+)", text, re.MULTILINE)
    assert section
    return [line for line in section[1].split() if not line.startswith("numpy==")]


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The bin/ of a new virtual environment with torch and the wheel; removed afterwards."""
    place = tmp_path_factory.mktemp("clean")
    pip = [sys.executable, "-m", "pip", "--python", place / "bin" / "python"]
    quick = ["--quiet", "--no-deps", "--no-compile", "--disable-pip-version-check"]
    try:
        made = _run(sys.executable, "-m", "venv", "--without-pip", place)
        assert made.returncode == 0, made.stderr
        patience = ["--retries", "2", "--timeout", "30"]
        done = _run(*pip, "install", *quick, *patience, *_runtime_pins())
        if done.returncode and any(words in done.stderr for words in _NOT_TO_BE_HAD):
            pytest.skip(f"no torch or no network: {done.stderr.strip().splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
        done = _run(*pip, "install", *quick, "--no-index", wheel)
        assert done.returncode == 0, done.stderr
        done = _run(*pip, "check")
        assert done.returncode == 0, done.stdout
        yield place / "bin"
    finally:
        shutil.rmtree(place)


#: Libraries that every system has for which manylinux stands; libpng needs zlib, snappy C++'s.
_EVERYWHERE = {
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
    "libstdc++.so.6",
    "libz.so.1",
}
#: Where a binary looks for its libraries.
_PATHS = {"DT_RPATH", "DT_RUNPATH"}


def _binaries(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    return {name: data for name, data in files.items() if data.startswith(b"\x7fELF")}


def test_the_wheel_is_for_any_linux_and_any_python_from_3_11(wheel: Path) -> None:
    assert re.fullmatch(
        rf"millhead-{re.escape(millhead.__version__)}-cp311-abi3-(manylinux_\d+_\d+_\w+\.?)+\.whl",
        wheel.name,
    )


def test_the_wheel_carries_its_codecs_and_its_network_library_takes_any_libcurl(
    wheel: Path,
) -> None:
    shown = _run(sys.executable, "-m", "auditwheel", "show", wheel)
    assert shown.returncode == 0, shown.stderr
    text = " ".join(shown.stdout.split())
    tag = wheel.stem.rpartition("-")[2].partition(".")[0]
    assert f'constrains the platform tag to "{tag}"' in text
    assert "libcurl.so.4 with versions" not in text  # any system's will do
    binaries = {Path(name).name: data for name, data in _binaries(wheel).items()}
    # Codecs are put inside for the extension module, under names of their own; the command holds them
    carried = {name for name in binaries if re.fullmatch(r"lib\w+-[0-9a-f]{8}\.so[.\d]*", name)}
    codecs = {"libblosc", "libdeflate", "libjpeg", "liblz4", "libpng16", "libsnappy", "libzstd"}
    assert {name.partition("-")[0] for name in carried} == codecs
    assert binaries.keys() - carried == {"_core.abi3.so", "millhead", "libmillhead-net.so"}
    inside = {"_core.abi3.so": carried, "libmillhead-net.so": {"libcurl.so.4"}, "millhead": set()}
    for name, data in binaries.items():
        dynamic = ELFFile(io.BytesIO(data)).get_section_by_name(".dynamic")
        entries = {entry.entry.d_tag for entry in dynamic.iter_tags()}
        needed = {entry.needed for entry in dynamic.iter_tags("DT_NEEDED")} - _EVERYWHERE
        assert name not in ("millhead", "libmillhead-net.so") or not entries & _PATHS
        assert needed <= inside.get(name, carried), name
        assert name != "libmillhead-net.so" or needed == {"libcurl.so.4"}


def test_the_command_finds_the_network_library_in_the_wheel(wheel: Path, tmp_path: Path) -> None:
    packages = tmp_path / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    command = tmp_path / "bin" / "millhead"
    command.parent.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    shutil.copy(next(packages.glob("*.data/scripts/millhead")), command)
    command.chmod(0o755)
    done = _run(command, "probe", "http://127.0.0.1:1/file")
    assert done.returncode == 1
    assert "cannot read http://127.0.0.1:1/file" in done.stderr
    assert done.stderr.count("\n") == 1
    next(packages.glob("millhead/libmillhead-net.so")).unlink()
    done = _run(command, "probe", "http://127.0.0.1:1/file")
    assert done.returncode == 1
    assert "libmillhead-net.so" in done.stderr
    assert done.stderr.count("\n") == 1


#: What only builds for tests have: functions, variables of the environment, names of points.
HOOKS = [
    "arm_point",
    "mh_point_arm",
    "MILLHEAD_TEST",
    "crash_point",
    "result-written",
    "mh_alloc_fail_at",
    "mh_alloc_live",
    "mh_thread_fail_at",
]


def _hooks_in(data: bytes) -> list[str]:
    return [word for word in HOOKS if word.encode() in data]


def test_the_wheel_has_no_hooks_for_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = {name: _hooks_in(archive.read(name)) for name in archive.namelist()}
    assert {name: words for name, words in found.items() if words} == {}


def test_the_hooks_are_found_where_there_are_some() -> None:
    here = _hooks_in(Path(_core.__file__).read_bytes())
    assert {"arm_point", "MILLHEAD_TEST", "result-written"} <= set(here)
    assert hasattr(_core, "arm_point")


def test_no_file_of_the_wheel_names_a_place_of_this_machine(wheel: Path) -> None:
    places = {ROOT, wheel.parent, Path(sys.prefix)}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            data = archive.read(name)
            found = [place for place in places if f"{place}/".encode() in data]
            assert not found, name


def test_the_environment_has_no_numpy_and_none_of_our_files(environment: Path) -> None:
    program = "import importlib.util as u, millhead; print(u.find_spec('numpy'), millhead.__file__)"
    done = _run(environment / "python", "-c", program, cwd=environment)
    assert done.returncode == 0, done.stderr
    numpy, file = done.stdout.split()
    assert numpy == "None"
    assert Path(file).is_relative_to(environment.parent)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet_of_the_readme_runs_from_the_wheel(
    number: int, environment: Path, tmp_path: Path
) -> None:
    script = tmp_path / "snippet.py"
    script.write_text(SNIPPETS[number])
    done = _run(environment / "python", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Advice" not in done.stderr


def test_the_command_runs_from_the_wheel(environment: Path) -> None:
    version = _run(environment / "millhead", "--version")
    assert version.returncode == 0, version.stderr
    assert version.stdout.split() == ["millhead", millhead.__version__]
    plan = _run(environment / "millhead", "plan", "cpus", "--json")
    assert plan.returncode == 0, plan.stderr
    assert json.loads(plan.stdout)["cpus"] >= 1


def test_a_program_runs_on_our_iterators_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from torch.utils.data import DataLoader\n"
        "print(type(iter(DataLoader([1], num_workers=1))).__module__)\n"
    )
    done = _run(environment / "millhead", "run", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "millhead.torch.iterators.multiprocess\n"
