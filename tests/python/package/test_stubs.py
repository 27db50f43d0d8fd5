"""The stub of the C core names what the core has: type checkers believe it without looking."""

from __future__ import annotations

import ast
from pathlib import Path

import millhead
from millhead import _core

#: Of the stub alone, for annotations; and of builds with hooks for tests alone.
ALIASES = {"NativeField"}
HOOKS = {"arm_point"}


def stub() -> ast.Module:
    assert millhead.__file__ is not None
    return ast.parse(Path(millhead.__file__).with_name("_core.pyi").read_text())


def names_in(body: list[ast.stmt]) -> set[str]:
    """What a module or a class defines."""
    found = set()
    for one in body:
        if isinstance(one, ast.FunctionDef | ast.ClassDef):
            found.add(one.name)
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            found.add(one.target.id)
    return found


def public(names: set[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_the_stub_names_all_that_the_core_has() -> None:
    assert public(names_in(stub().body)) - ALIASES == public(set(vars(_core))) - HOOKS


def test_the_stubs_classes_have_the_members_of_the_cores() -> None:
    classes = [one for one in stub().body if isinstance(one, ast.ClassDef)]
    assert len(classes) > 10
    for one in classes:
        assert public(names_in(one.body)) == public(set(vars(getattr(_core, one.name)))), one.name


def test_every_public_name_can_be_had() -> None:
    for name in millhead.__all__:
        assert getattr(millhead, name) is not None
