"""``millhead.torch.install()``: loaders of torch's own class give our iterators, others do not."""

from __future__ import annotations

import copy
import importlib.util
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import millhead
import millhead.torch
import millhead.torch.loader_stats
import numpy as np
import pytest
import torch
import torch.utils.data
from helpers import compare
from millhead import _import_hook
from millhead.torch import installation
from torch.utils.data import DataLoader, datapipes
from torch.utils.data.dataloader import _SingleProcessDataLoaderIter
from torchdata.stateful_dataloader import StatefulDataLoader

TORCHS = (DataLoader._get_iterator, DataLoader.__iter__)


@pytest.fixture
def installed() -> Iterator[None]:
    millhead.torch.install()
    yield
    millhead.torch.uninstall()
    assert (DataLoader._get_iterator, DataLoader.__iter__) == TORCHS


class Noisy(torch.utils.data.Dataset[Any]):
    """Samples that draw from every generator."""

    def __len__(self) -> int:
        return 22

    def __getitem__(self, index: int) -> Any:
        return {"i": index, "x": torch.rand(3), "y": np.random.rand(2), "name": str(index)}


class Stream(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Iterator[int]:
        yield from range(9)


def is_ours(iterator: object) -> bool:
    return type(iterator).__module__.startswith("millhead.")


def _epochs(dataset: Any, **options: Any) -> tuple[Any, ...]:
    compare.seed_everything(5)
    loader: DataLoader[Any] = DataLoader(dataset, batch_size=4, **options)
    epochs = [[compare.describe(batch) for batch in loader] for _ in range(2)]
    return epochs, compare.rng_states()


# ---- which loaders -------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "shuffle": True}])
@pytest.mark.parametrize("dataset", [Noisy(), Stream()], ids=["map", "iterable"])
def test_batches_and_generators_are_torchs(dataset: Any, options: dict[str, Any]) -> None:
    if isinstance(dataset, Stream) and "shuffle" in options:
        options = {"num_workers": 2, "persistent_workers": True}
    expected = _epochs(dataset, **options)
    millhead.torch.install()
    try:
        found = _epochs(dataset, **options)
        assert is_ours(iter(DataLoader(dataset, **options)))
    finally:
        millhead.torch.uninstall()
    assert found == expected


def test_a_loader_built_before_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    loader: DataLoader[Any] = DataLoader(Noisy())
    assert type(iter(loader)) is _SingleProcessDataLoaderIter
    millhead.torch.install()
    try:
        assert is_ours(iter(loader))
    finally:
        millhead.torch.uninstall()
    assert type(iter(loader)) is _SingleProcessDataLoaderIter


def test_the_class_stays_torchs(installed: None) -> None:
    loader: DataLoader[Any] = DataLoader([1])
    assert torch.utils.data.DataLoader is DataLoader is torch.utils.data.dataloader.DataLoader
    assert type(loader) is DataLoader
    assert DataLoader.__module__ == "torch.utils.data.dataloader"


def test_installing_twice_is_installing_once(installed: None) -> None:
    millhead.torch.install()
    assert is_ours(iter(DataLoader([1])))
    millhead.torch.uninstall()
    assert (DataLoader._get_iterator, DataLoader.__iter__) == TORCHS
    millhead.torch.uninstall()
    assert type(iter(DataLoader([1]))) is _SingleProcessDataLoaderIter


def test_our_own_class_is_as_ever(installed: None) -> None:
    loader = millhead.torch.DataLoader([1, 2, 3], memory="1MB")
    assert [int(batch) for batch in loader] == [1, 2, 3]
    assert loader.stats()["batches"] == 3
    assert "_millhead" not in vars(loader)


def test_a_subclass_is_reached(installed: None) -> None:
    class Named(DataLoader[Any]):
        @property
        def _index_sampler(self) -> Any:
            return [[2, 1], [0]]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = Named([10, 11, 12], num_workers=1)
        assert is_ours(iter(loader))
        assert [batch.tolist() for batch in loader] == [[12, 11], [10]]


def test_a_class_with_iterators_of_its_own_keeps_them_and_that_is_said_once(
    installed: None,
) -> None:
    class Own(DataLoader[Any]):
        def _get_iterator(self) -> Any:
            return iter("ab")

    class Passing(DataLoader[Any]):
        def _get_iterator(self) -> Any:
            return super()._get_iterator()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert list(Own([1])) == ["a", "b"]
            assert type(iter(Passing([1]))) is _SingleProcessDataLoaderIter
    said = [str(warning.message) for warning in caught]
    assert [warning.category for warning in caught] == [millhead.Advice] * 2
    assert [Path(warning.filename) for warning in caught] == [Path(__file__)] * 2
    assert "test_install" in said[0] and "Own" in said[0] and "_get_iterator" in said[0]
    assert "Passing" in said[1]


def test_a_datapipe_has_torchs_iterator_and_is_counted(installed: None) -> None:
    pipe = datapipes.iter.IterableWrapper(range(5))
    loader: DataLoader[Any] = DataLoader(pipe, batch_size=2)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4]]
    assert millhead.torch.stats(loader)["paths"] == {"slot": 0, "general": 0, "torch": 3}


@pytest.mark.filterwarnings("ignore:.*set_vital:UserWarning")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_torchdatas_stateful_loader_goes_on(
    installed: None, workers: int, persistent: bool
) -> None:
    def make() -> Any:
        return StatefulDataLoader(
            list(range(20)),
            batch_size=2,
            shuffle=True,
            num_workers=workers,
            persistent_workers=persistent and workers > 0,
        )

    loader = make()
    list(loader)
    iterator = iter(loader)
    assert type(iterator).__module__.startswith("millhead.")
    next(iterator)
    state = loader.state_dict()
    expected = [[batch.tolist() for batch in iterator], [batch.tolist() for batch in loader]]
    resumed = make()
    resumed.load_state_dict(state)
    assert [[batch.tolist() for batch in resumed] for _ in range(2)] == expected


@pytest.mark.filterwarnings("ignore:.*set_vital:UserWarning")
def test_a_state_that_torchdata_wrote_is_torchdatas_to_go_on_from() -> None:
    loader: Any = StatefulDataLoader(list(range(6)), batch_size=2)
    next(iter(loader))
    state = loader.state_dict()
    millhead.torch.install()
    try:
        resumed: Any = StatefulDataLoader(list(range(6)), batch_size=2)
        resumed.load_state_dict(state)
        assert [batch.tolist() for batch in resumed] == [[2, 3], [4, 5]]
        iterator = iter(resumed)
        assert type(iterator).__module__.startswith("millhead.")
    finally:
        millhead.torch.uninstall()


def _interrupted(make: Callable[[], Any]) -> Any:
    """Two epochs, the first one saved after a batch; and what a second loader goes on with."""
    loader = make()
    iterator = iter(loader)
    batches = [next(iterator).tolist()]
    state = loader.state_dict()
    batches += [batch.tolist() for batch in iterator]
    epochs = [batches, [batch.tolist() for batch in loader]]
    resumed = make()
    resumed.load_state_dict(state)
    kind = type(iter(make()))
    return kind, sorted(state), epochs, [[batch.tolist() for batch in resumed] for _ in range(2)]


@pytest.mark.filterwarnings("ignore:.*set_vital:UserWarning")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pipe", [datapipes.iter.IterableWrapper, datapipes.map.SequenceWrapper])
def test_torchdatas_stateful_loader_of_a_datapipe_keeps_its_iterators(
    workers: int, pipe: Any
) -> None:
    def make() -> Any:
        return StatefulDataLoader(pipe(range(12)), batch_size=2, num_workers=workers)

    expected = _interrupted(make)
    assert expected[2][0][1:] == expected[3][0]
    millhead.torch.install()
    try:
        assert _interrupted(make) == expected
    finally:
        millhead.torch.uninstall()


def test_another_replacement_before_ours_survives_the_removal_of_ours(installed: None) -> None:
    ours = DataLoader._get_iterator
    calls = []

    def theirs(self: Any) -> Any:
        calls.append(self)
        return ours(self)

    DataLoader._get_iterator = theirs  # type: ignore[method-assign]
    try:
        millhead.torch.uninstall()
        assert DataLoader._get_iterator is theirs
        assert type(iter(DataLoader([1]))) is _SingleProcessDataLoaderIter
        millhead.torch.install()
        assert DataLoader._get_iterator is theirs
        assert len(calls) == 1
    finally:
        DataLoader._get_iterator = ours  # type: ignore[method-assign]


def test_persistent_workers_go_on_after_the_removal(installed: None) -> None:
    loader: DataLoader[Any] = DataLoader(Noisy(), num_workers=1, persistent_workers=True)
    first = iter(loader)
    assert is_ours(first)
    millhead.torch.uninstall()
    assert len(list(loader)) == 22
    assert iter(loader) is first


def test_a_forked_child_has_workers_of_its_own(installed: None) -> None:
    loader: DataLoader[Any] = DataLoader(Noisy(), num_workers=1, persistent_workers=True)
    assert len(list(loader)) == 22
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if len(list(loader)) == 22 else 2
            loader._iterator._shutdown_workers()  # type: ignore[union-attr]
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(loader)) == 22


# ---- what is kept with a loader ------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_stats_of_a_loader_and_of_its_iterator(workers: int, installed: None) -> None:
    loader: DataLoader[Any] = DataLoader(Noisy(), batch_size=4, num_workers=workers)
    assert millhead.torch.stats(loader)["batches"] == 0
    iterator = iter(loader)
    next(iterator)
    assert millhead.torch.stats(iterator)["batches"] == 1
    assert len(list(iterator)) == 5
    stats = millhead.torch.stats(loader, reset=True)
    assert (stats["batches"], stats["samples"], stats["workers"]) == (6, 22, workers)
    assert stats["start"] == ("fork" if workers else "none")
    assert millhead.torch.stats(loader)["batches"] == 0


def test_stats_outlive_the_removal_and_are_refused_for_other_loaders(installed: None) -> None:
    loader: DataLoader[Any] = DataLoader([1, 2])
    list(loader)
    millhead.torch.uninstall()
    assert millhead.torch.stats(loader)["batches"] == 2
    for other in (DataLoader([1]), copy.copy(loader), [1], None):
        with pytest.raises(TypeError, match="install"):
            millhead.torch.stats(other)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_used_loader_pickles_and_copies_and_its_copies_begin_afresh(
    workers: int, installed: None
) -> None:
    loader: DataLoader[Any] = DataLoader([1, 2, 3], num_workers=workers)
    list(loader)
    pickled = pickle.dumps(loader)
    assert b"millhead" not in pickled.replace(b"_millhead", b"")  # to be read without it too
    for other in (pickle.loads(pickled), copy.deepcopy(loader), copy.copy(loader)):
        assert [int(batch) for batch in other] == [1, 2, 3]
        assert millhead.torch.stats(other)["batches"] == 3
    assert millhead.torch.stats(loader)["batches"] == 3


def test_nothing_goes_through_the_classs_own_setattr(installed: None) -> None:
    names = []

    class Recording(DataLoader[Any]):
        def __setattr__(self, name: str, value: Any) -> None:
            names.append(name)
            super().__setattr__(name, value)

    loader = Recording([1, 2], num_workers=1)
    names.clear()
    assert len(list(loader)) == 2
    assert names == []
    assert [name for name in vars(loader) if "millhead" in name] == ["_millhead"]


def test_it_has_every_argument_of_ours_with_its_default(installed: None) -> None:
    loader: DataLoader[Any] = DataLoader([1])
    iter(loader)
    ours = vars(millhead.torch.DataLoader([1]))
    kept = vars(vars(loader)["_millhead"])
    own = {name for name in ours if not name.startswith("_")} - set(vars(loader))
    assert {"dispatch", "memory"} <= own
    assert {name: kept[name] for name in own} == {name: ours[name] for name in own}


LATER = """
from torch.utils.data import DataLoader

class Later(DataLoader):
    def _get_iterator(self):
        return iter("ab")
"""


def test_a_class_of_a_module_imported_later_is_reached_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "defines_later.py").write_text(LATER)
    monkeypatch.syspath_prepend(str(tmp_path))
    row = [("Later", "_get_iterator", installation._get_iterator)]
    monkeypatch.setitem(installation._REPLACEMENTS, "defines_later", row)
    millhead.torch.install()
    millhead.torch.uninstall()
    millhead.torch.install()
    try:
        later: Any = importlib.import_module("defines_later").Later
        assert is_ours(iter(later([1])))
        millhead.torch.uninstall()
        assert list(later([1])) == ["a", "b"]
        millhead.torch.install()
        assert [int(batch) for batch in later([1])] == [1]
    finally:
        millhead.torch.uninstall()
        del sys.modules["defines_later"]


# ---- awaiting an import --------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that can be imported, and has not been."""
    name = "a_module_to_be_awaited"
    (tmp_path / f"{name}.py").write_text("if not ready: raise LookupError(ready)\nvalue = 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("builtins.ready", True, raising=False)
    yield name
    sys.modules.pop(name, None)


def test_an_awaited_module_is_met_once_when_it_is_complete(module: str) -> None:
    met: list[Any] = []

    def meet(imported: Any) -> None:
        met.append((imported.__name__, imported.value))

    _import_hook.when_imported(module, meet)
    _import_hook.when_imported(module, meet)
    assert importlib.util.find_spec(module) is not None
    assert met == []
    imported = importlib.import_module(module)
    assert met == [(module, 3)]
    assert "exec_module" not in vars(imported.__loader__)
    importlib.reload(imported)
    assert met == [(module, 3)]
    _import_hook.when_imported(module, meet)  # it is there: at once
    assert len(met) == 2


def test_a_module_that_fails_at_first_is_still_awaited(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[Any] = []
    _import_hook.when_imported(module, met.append)
    with monkeypatch.context() as context:
        context.setattr("builtins.ready", False)
        with pytest.raises(LookupError):
            importlib.import_module(module)
    assert met == []
    imported = importlib.import_module(module)
    assert met == [imported]


def test_what_is_taken_back_is_not_done(module: str) -> None:
    met: list[Any] = []
    _import_hook.when_imported(module, met.append)
    _import_hook.forget(module, met.append)
    _import_hook.forget("never.awaited", met.append)
    importlib.import_module(module)
    assert met == []
