"""``millhead run``: a program runs as Python runs it, and its loaders are ours."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import pytest
from helpers import procs

COMMAND = os.path.join(sysconfig.get_path("scripts"), "millhead")
RUN = [COMMAND, "run"]


def _run(*command: str, seconds: float = 60.0, **options: Any) -> subprocess.CompletedProcess[str]:
    done = procs.run(list(command), seconds=seconds, **options)
    assert done.left == set()  # type: ignore[attr-defined]
    return done


def _write(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))
    return str(path)


# ---- as Python runs it ---------------------------------------------------------------------------

# What a program can see of how it is run, and that nothing was imported before it
SHOW = """\
import json, os, sys
main = sys.modules["__main__"]
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "name": __name__, "file": __file__,
    "spec": getattr(__spec__, "name", None), "package": __package__, "main": main is not None,
    "flags": list(sys.flags), "warnings": sys.warnoptions, "directory": os.getcwd(),
    "imported": [name for name in ("torch", "numpy") if name in sys.modules],
    "interrupt": repr(__import__("signal").getsignal(2)),
}))
"""
# Ways to end, as bodies of a program
ENDINGS = {
    "by exit 0": "import sys; sys.exit(0)",
    "by exit 3": "import sys; sys.exit(3)",
    "by exit with a text": "import sys; sys.exit('a text')",
    "by an exception": "def f():\n    raise KeyError('x')\nf()",
    "by a syntax error": "def f(:\n",
    "by _exit": "import os; os._exit(5)",
    "by a signal": "import os; os.kill(os.getpid(), 15)",
    "by an interrupt": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
    "in a forked child too": """
        import os, sys
        if os.fork() == 0:
            sys.exit(4)
        sys.exit(os.waitstatus_to_exitcode(os.wait()[1]) + 2)
    """,
}


def _equal_to_python(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    expected = _run(sys.executable, *arguments, cwd=directory)
    found = _run(*RUN, *arguments, cwd=directory, env={"MILLHEAD_PYTHON": sys.executable})
    assert found.stdout == expected.stdout
    assert found.stderr == expected.stderr
    assert found.returncode == expected.returncode
    return found


@pytest.mark.parametrize(
    "arguments",
    [
        ["show.py"],
        ["show.py", "-m", "--help", "a b", ""],
        ["./deep/show.py", "x"],
        ["-m", "show", "x", "-h"],
        ["-m", "deep.show"],
        ["-m", "deep"],
        ["deep"],
        ["show.zip", "x"],
    ],
    ids=" ".join,
)
def test_a_program_sees_no_difference(arguments: list[str], tmp_path: Path) -> None:
    for name in ("show.py", "deep/show.py", "deep/__main__.py"):
        _write(tmp_path / name, SHOW)
    with zipfile.ZipFile(tmp_path / "show.zip", "w") as archive:
        archive.writestr("__main__.py", SHOW)
    done = _equal_to_python(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["name"] == "__main__"
    assert shown["argv"][1:] == arguments[1 + (arguments[0] == "-m") :]
    assert shown["imported"] == []


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_program_ends_as_it_would(ending: str, tmp_path: Path) -> None:
    _write(tmp_path / "script.py", ENDINGS[ending])
    _equal_to_python(tmp_path, "script.py")


def test_an_interrupted_program_is_130_to_a_shell(tmp_path: Path) -> None:
    script = _write(tmp_path / "script.py", ENDINGS["by an interrupt"])
    done = _run("sh", "-c", '"$@"; echo $?', "sh", *RUN, script)
    assert done.stdout == "130\n"
    assert done.stderr.endswith("KeyboardInterrupt\n")


def test_options_before_the_module_are_passed_on(tmp_path: Path) -> None:
    _write(tmp_path / "show.py", SHOW)
    options = ["-O", "-X", "dev", "-W", "error", "-u"]
    expected = _run(sys.executable, *options, "show.py", "x", cwd=tmp_path)
    found = _run(sys.executable, *options, "-m", "millhead", "run", "show.py", "x", cwd=tmp_path)
    assert found.stdout == expected.stdout
    assert json.loads(found.stdout)["warnings"] == ["default", "error"]


def test_an_own_sitecustomize_still_runs(tmp_path: Path) -> None:
    _write(tmp_path / "own" / "sitecustomize.py", "value = 3\n")
    script = _write(tmp_path / "script.py", "import sitecustomize; print(sitecustomize.value)\n")
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = os.pathsep.join([str(tmp_path / "own"), *filter(None, before)])
    done = _run(*RUN, script, env={"PYTHONPATH": paths})
    assert done.stdout == "3\n", done.stderr


def test_a_python_without_millhead_started_by_the_program_is_not_disturbed(tmp_path: Path) -> None:
    script = _write(
        tmp_path / "script.py",
        """
        import os, subprocess, sys
        base = os.path.join(sys.base_prefix, "bin", "python3")
        program = "import sys; print('millhead' in sys.modules, sys.prefix == sys.base_prefix)"
        print(subprocess.run([base, "-c", program], capture_output=True, text=True))
        """,
    )
    done = _run(*RUN, script)
    assert "returncode=0, stdout='False True\\n', stderr=''" in done.stdout, done


# ---- what cannot be run --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "nothing to run"),
        (["gone.py", "x"], "no script 'gone.py'"),
        (["link.py"], "no script 'link.py'"),
        (["trian.py"], "no script 'trian.py' (run): did you mean 'train.py'?"),
        (["-m", "trian"], "no module 'trian' (run): did you mean 'train'?"),
        (["directory"], "'directory' is a directory"),
        (["two\nlines\x1b.py"], "no script 'two?lines?.py'"),
        (["-m"], "'-m' needs a module"),
        (["-m", "gone_module", "x"], "no module 'gone_module'"),
        (["-m", "gone_package.part"], "no module 'gone_package.part'"),
        (["-m", ".relative"], "no module '.relative'"),
        (["-x", "script.py"], "unknown option '-x'"),
        (["--jobs=2"], "unknown option '--jobs=2'"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_line(
    arguments: list[str], what: str, tmp_path: Path
) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "link.py").symlink_to("gone.py")
    (tmp_path / "train.py").touch()
    done = _run(*RUN, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"millhead: [^\n]+ \(run\): [^\n]+\n", done.stderr)
    assert what in done.stderr


def test_a_part_of_a_package_that_is_not_there_is_pythons_to_name(tmp_path: Path) -> None:
    _write(tmp_path / "package" / "__init__.py", "print('imported once')\n")
    done = _equal_to_python(tmp_path, "-m", "package.gone")
    assert done.returncode == 1
    assert done.stdout == "imported once\n"
    assert "No module named package.gone" in done.stderr


@pytest.mark.parametrize("option", ["-I", "-E", "-S"])
def test_a_python_that_would_not_look_is_refused(option: str, tmp_path: Path) -> None:
    if option == "-S":
        done = _run(
            sys.executable,
            "-S",
            "-c",
            f"import sys; sys.path += {sys.path!r}; import millhead.run as r; "
            "sys.exit(r.main(['x.py']))",
        )
    else:
        done = _run(sys.executable, option, "-m", "millhead", "run", "x.py")
    assert done.returncode == 2
    assert re.fullmatch(r"millhead: .+ \(run\): leave out -I, -E and -S\n", done.stderr)


def test_help() -> None:
    for command in ([COMMAND, "run"], [sys.executable, "-m", "millhead", "run"]):
        for option in ("--help", "-h"):
            done = _run(*command, option)
            assert done.returncode == 0
            assert done.stdout.startswith("usage: millhead run ")
            assert "torchrun" in done.stdout
            assert done.stderr == ""
            assert max(map(len, done.stdout.splitlines())) <= 88


def test_other_verbs_are_the_commands(tmp_path: Path) -> None:
    done = _run(sys.executable, "-m", "millhead", "plan", "cpus")
    assert done.returncode == 2
    assert re.fullmatch(r"millhead: .+ \(python -m millhead\): .+\n", done.stderr)


def test_a_python_without_the_package_is_named(tmp_path: Path) -> None:
    base = os.path.join(sys.base_prefix, "bin", "python3")
    done = _run(*RUN, "x.py", env={"MILLHEAD_PYTHON": base, "PYTHONPATH": ""}, cwd=tmp_path)
    assert done.returncode == 2
    assert re.fullmatch(r"millhead: no package millhead.*\(.+\): .+\n", done.stderr)


def test_a_directory_named_like_the_package_is_not_it(tmp_path: Path) -> None:
    _write(tmp_path / "millhead" / "__init__.py", "raise SystemExit('wrong')")
    script = _write(tmp_path / "elsewhere" / "script.py", "print('right')")
    done = _run(*RUN, script, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr


# ---- with loaders --------------------------------------------------------------------------------

# Every way to have a loader in a process of its own; prints what each process saw.
PROCESSES = """\
import json, subprocess, sys
import torch
import torch.multiprocessing as multiprocessing
from torch.utils.data import DataLoader, Dataset

class Noisy(Dataset):
    def __len__(self):
        return 11
    def __getitem__(self, index):
        return torch.rand(2) + index

def show(where, context=None):
    torch.manual_seed(7)
    loader = DataLoader(Noisy(), batch_size=4, num_workers=0 if context is None else 1,
                        shuffle=True, multiprocessing_context=context)
    iterator = iter(loader)
    kind = type(iterator).__module__.partition(".")[0]
    found = [batch.tolist() for batch in iterator]
    print(json.dumps([where, kind, [found, torch.rand(1).item()]]), flush=True)

def in_a_rank(rank):
    show("spawned rank")

if __name__ == "__main__":
    show("main")
    if sys.argv[1:] == ["child"]:
        sys.exit()
    show("main, forking", "fork")
    if sys.argv[1:] == ["briefly"]:
        sys.exit()
    show("main, spawning", "spawn")
    multiprocessing.spawn(in_a_rank, nprocs=1)
    subprocess.run([sys.executable, __file__, "child"], check=True)
"""


def test_loaders_are_ours_in_every_process_and_give_torchs_batches(tmp_path: Path) -> None:
    script = _write(tmp_path / "script.py", PROCESSES)

    def seen(*command: str) -> list[list[Any]]:
        done = _run(*command)
        assert done.returncode == 0, done.stderr
        assert "Advice" not in done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    (_, torchs, alone), (_, _, forking) = seen(sys.executable, script, "briefly")
    assert torchs == "torch"
    assert seen(*RUN, script) == [
        ["main", "millhead", alone],
        ["main, forking", "millhead", forking],
        ["main, spawning", "millhead", forking],
        ["spawned rank", "millhead", alone],
        ["main", "millhead", alone],
    ]


ENDLESS = """\
import torch
from torch.utils.data import DataLoader, IterableDataset

class Endless(IterableDataset):
    def __iter__(self):
        while True:
            yield torch.zeros(2)

for number, batch in enumerate(DataLoader(Endless(), num_workers=2)):
    if number == 20:
        print("going", flush=True)
"""


def test_ctrl_c_ends_everything_with_one_traceback(tmp_path: Path) -> None:
    script = _write(tmp_path / "script.py", ENDLESS)
    mark, environment = procs.new_mark()
    process = subprocess.Popen(
        [*RUN, script],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "going\n"
        os.killpg(process.pid, signal.SIGINT)
        _, error = process.communicate(timeout=30)
        assert process.returncode == -signal.SIGINT
        assert error.count("Traceback") == 1, error
        assert error.endswith("KeyboardInterrupt\n")
        assert procs.wait_until(lambda: not procs.marked(mark))
    finally:
        procs.end_marked(mark)


def test_where_millhead_cannot_be_had_torch_serves_and_a_line_says_why(tmp_path: Path) -> None:
    script = _write(
        tmp_path / "script.py",
        """
        import sys
        sys.modules["millhead.torch"] = None  # as broken as can be
        import torch.utils.data
        print(type(iter(torch.utils.data.DataLoader([1]))).__module__)
        """,
    )
    done = _run(*RUN, script)
    assert done.returncode == 0
    assert done.stdout == "torch.utils.data.dataloader\n"
    assert re.fullmatch(r"millhead: torch's own iterators .+ \(run\): .+\n", done.stderr)


# Finders that programs put before all others. Each has the plain machinery find the module, and gives
# its own spec; they differ in how they ask.
FINDER = """\
import importlib.machinery, importlib.util, sys

class Loader(importlib.machinery.SourceFileLoader):
    pass

class Finder:
    asking = False

    def find_spec(self, name, path=None, target=None):
        if CLAIMS:
            spec = self.ask(name, path, target)
            if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
                spec.loader = Loader(name, spec.origin)
            return spec

    def bypasses(self, name, path, target):
        return importlib.machinery.PathFinder.find_spec(name, path, target)

    def asks_the_others(self, name, path, target):
        others = (finder for finder in list(sys.meta_path) if finder is not self)
        found = (finder.find_spec(name, path, target) for finder in others)
        return next((spec for spec in found if spec is not None), None)

    def steps_aside(self, name, path, target):
        place = sys.meta_path.index(self)
        del sys.meta_path[place]
        try:
            return importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(place, self)

    def asks_once(self, name, path, target):
        if self.asking:
            return None
        self.asking = True
        try:
            return importlib.util.find_spec(name)
        finally:
            self.asking = False

    ask = WAY

sys.meta_path.insert(PLACE, Finder())
import torch
from torch.utils.data import DataLoader
print(type(torch.__loader__).__name__, type(torch.__spec__).__name__)
print(type(iter(DataLoader([1]))).__module__.partition(".")[0])
"""


def _finder(way: str, place: int = 0, claims: str = "name == 'torch'") -> str:
    return FINDER.replace("WAY", way).replace("PLACE", str(place)).replace("CLAIMS", claims)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("way", ["bypasses", "asks_the_others", "steps_aside", "asks_once"])
def test_a_finder_of_the_programs_own_for_torch_keeps_nothing_from_millhead(
    way: str, place: int, tmp_path: Path
) -> None:
    script = _write(tmp_path / "script.py", _finder(way, place))
    expected = _run(sys.executable, script)
    assert expected.stdout == "Loader ModuleSpec\ntorch\n", expected.stderr
    done = _run(*RUN, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Loader ModuleSpec\nmillhead\n"
    assert done.stderr == ""


def test_a_program_that_removes_the_import_hook_gets_a_line_at_the_end(tmp_path: Path) -> None:
    program = _finder("bypasses").replace(
        "insert(0, Finder())", "__setitem__(slice(None), [Finder(), *sys.meta_path[1:]])"
    )
    script = _write(tmp_path / "script.py", program)
    done = _run(*RUN, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Loader ModuleSpec\ntorch\n"
    said = r"\S*script.py:0: Advice: millhead: .+, by __main__\.Loader \(run\): .+install\(\).*\n"
    assert re.fullmatch(said, done.stderr)
    script = _write(tmp_path / "script.py", program + "import millhead.torch\n")
    assert _run(*RUN, script).stderr == ""


RANK = """\
import os, sys
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
import torch

dist.init_process_group("gloo")
data = TensorDataset(torch.arange(10))
sampler = DistributedSampler(data, shuffle=False)
loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=1)
kind = type(iter(loader)).__module__.partition(".")[0]
mine = torch.cat([batch for batch, in loader])
parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
dist.all_gather(parts, mine)
os.write(1, f"{kind} {sys.argv[1:]} {sorted(torch.cat(parts).tolist())}\\n".encode())
dist.destroy_process_group()
"""
TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node"]


@pytest.mark.parametrize(
    ("ranks", "command"),
    [
        (2, [sys.executable, "-m", *TORCHRUN, "2", "--no-python", *RUN]),
        (1, [sys.executable, "-m", *TORCHRUN, "1", "-m", "millhead", "run"]),
        (1, [*RUN, "-m", *TORCHRUN, "1"]),
    ],
    ids=["--no-python millhead run", "-m millhead run", "millhead run -m torch.distributed.run"],
)
def test_under_torchrun(ranks: int, command: list[str], tmp_path: Path) -> None:
    script = _write(tmp_path / "script.py", RANK)
    done = _run(*command, script, "--lr", "1", env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"millhead ['--lr', '1'] {list(range(10))}"] * ranks
