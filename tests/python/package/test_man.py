"""The manual page and the completion name what the command has, no more and no less."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
MAN = ROOT / "man" / "millhead.1"
COMPLETION = ROOT / "share" / "millhead.bash"
ZSH = ROOT / "share" / "millhead.zsh"
FISH = ROOT / "share" / "millhead.fish"
COMMAND = os.path.join(sysconfig.get_path("scripts"), "millhead")
COMMON = {"--help"}  # told once for all verbs
OPTION_LINE = re.compile(r"^  (-\S+(?: [A-Z]+)?(?:, -\S+(?: [A-Z]+)?)*)", re.MULTILINE)


def _help(*verb: str) -> str:
    return subprocess.run(
        [COMMAND, *verb, "--help"], capture_output=True, text=True, check=True
    ).stdout


def _listed(text: str, title: str) -> list[str]:
    """The first words of the lines under a title of a help text."""
    block = re.search(rf"^{title}:\n((?:  .*\n)+)", text, re.MULTILINE)
    return re.findall(r"^  ([a-z-]+) ", block[1], re.MULTILINE) if block else []


def _options(text: str) -> set[str]:
    words = " ".join(OPTION_LINE.findall(text)).replace(",", " ").split()
    return {word for word in words if word.startswith("-")}


def _said() -> dict[str, set[str]]:
    """The options of every verb, `plan` with its subjects, by what --help says."""
    said = {}
    for verb in _listed(_help(), "verbs"):
        subjects = _listed(_help(verb), "subjects")
        for name in [f"{verb} {subject}" for subject in subjects] or [verb]:
            said[name] = _options(_help(*name.split())) - COMMON
    return said


def _in_manual() -> dict[str, set[str]]:
    """The same by the subsections of the manual page."""
    found: dict[str, set[str]] = {}
    for section in re.split(r"^\.S[sh] ", MAN.read_text().replace("\\\n", ""), flags=re.MULTILINE):
        name = re.match(r"[a-z]+(?: [a-z]+)?", section)
        if name:
            items = " ".join(re.findall(r"^\.It (Fl .*)", section, re.MULTILINE))
            flags = {f"-{flag}" for flag in re.findall(r"Fl (\S+)", items)}
            found[name[0]] = found.get(name[0], set()) | flags  # some have two ways to be called
    return found


def test_the_manual_names_every_verb_and_option_and_no_other() -> None:
    said = _said()
    assert len(said) >= 6
    assert said["doctor"] >= {"--pid", "-o", "--json"}
    assert _in_manual() == said


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff here")
def test_the_manual_is_set_without_a_warning() -> None:
    done = subprocess.run(
        ["groff", "-mdoc", "-Tascii", "-ww", MAN], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "--checklist" in re.sub(".\b", "", done.stdout)  # bold is a letter typed twice


def test_both_are_installed_where_they_are_looked_for() -> None:
    share = Path(sysconfig.get_path("data")) / "share"
    assert (share / "man/man1/millhead.1").read_bytes() == MAN.read_bytes()
    completion = share / "bash-completion/completions/millhead"
    assert completion.read_bytes() == COMPLETION.read_bytes()
    assert (share / "zsh/site-functions/_millhead").read_bytes() == ZSH.read_bytes()
    assert (share / "fish/vendor_completions.d/millhead.fish").read_bytes() == FISH.read_bytes()


def _complete(*words: str) -> set[str]:
    """What bash offers for the last word of a command line."""
    script = f"""
        source {COMPLETION}
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        [[ $(complete -p millhead) == *"-F _millhead millhead" ]] || exit 3
        _millhead "$1"
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(
        ["bash", "-euc", script, "bash", COMMAND, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return set(done.stdout.split())


def test_completion_offers_verbs_subjects_and_options() -> None:
    assert _complete("") == {*_listed(_help(), "verbs"), "--help", "--version"}
    assert _complete("re") == {"read", "report"}
    for name, options in _said().items():
        assert _complete(*name.split(), "-") == options | COMMON


def test_completion_offers_causes_verbs_and_orders() -> None:
    assert _complete("explain", "") == {*_listed(_help("explain"), "causes")}
    assert _complete("explain", "cpu") == {"cpu-bound"}
    assert _complete("help", "re") == {"read", "report"}
    assert _complete("read", "data", "--shuffle", "") == {"blocks", "torch"}


def test_completion_leaves_files_and_commands_to_bash() -> None:
    assert _complete("report", "ru") == set()
    assert _complete("doctor", "--", "python", "--") == set()
    assert _complete("nothing", "--") == set()


def _complete_zsh(*words: str) -> set[str]:
    """What the function for zsh offers, whatever the last word begins with."""
    script = f"""
        words=("$@") CURRENT=$# PREFIX=${{@[-1]}}
        compadd() {{ shift; print -l -- "$@" }}
        _files() {{ print FILES }}
        source {ZSH}
    """
    done = subprocess.run(
        ["zsh", "-fc", script, "zsh", COMMAND, *words], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh_offers_the_same() -> None:
    assert _complete_zsh("") == {*_listed(_help(), "verbs"), "--help", "--version"}
    for name, options in _said().items():
        assert _complete_zsh(*name.split(), "-") == options | COMMON
    assert _complete_zsh("plan", "") == set(_listed(_help("plan"), "subjects"))
    assert _complete_zsh("report", "ru") == {"FILES"}
    assert _complete_zsh("doctor", "--", "python", "-") == {"FILES"}


def _complete_fish(*words: str) -> set[str]:
    """What fish offers for the last word of a command line."""
    line = " ".join(["millhead", *words])
    script = f"source {FISH}; complete -C '{line}'"
    path = f"{os.path.dirname(COMMAND)}:{os.environ['PATH']}"
    done = subprocess.run(
        ["fish", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path},
    )
    assert done.stderr == ""
    return {line.partition("\t")[0] for line in done.stdout.splitlines()} - {""}


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_offers_the_same() -> None:
    assert _complete_fish("re") == {"read", "report"}
    assert _complete_fish("plan", "c") >= {"cpus", "chunks"}
    for name, options in _said().items():
        assert _complete_fish(*name.split(), "-") == options | COMMON
    assert "--json" not in _complete_fish("doctor", "--", "python", "-")
