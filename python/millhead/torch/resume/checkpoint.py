"""How far training is, in a file that is always whole: the old one or the new one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import IterableDataset

import millhead
from millhead.torch.loader_stats import advise
from millhead.torch.ranks import rank0_first
from millhead.torch.resume import json_values
from millhead.torch.resume.rng_state import RngState

#: What every state has, and what it is before training begins.
_BEGINNING: dict[str, Any] = {"epoch": 0, "global_step": 0, "epoch_step": 0, "running_loss": 0.0}
_VERSION = 1


class Checkpoint:
    """The progress of training, and of a loader, in a JSON file that rank 0 writes.

    Call :meth:`load` and :meth:`save` on every rank: they are collective operations. Rank 0 alone
    reads and writes the file; each rank's loader has its own part in it.

    Args:
        path: the file; its directory is made when it is first written.
        loader: what has ``state_dict()`` and ``load_state_dict()``, or None.
        generators: keep each rank's generators too, those of ``random``, numpy, torch and its CUDA
            devices, so that dropout and the like go on with the numbers they would have drawn.

    Example:
        >>> import tempfile
        >>> from millhead.torch import Checkpoint, DataLoader
        >>> path = tempfile.mkdtemp() + "/progress.json"
        >>> loader = DataLoader(range(6), batch_size=2)
        >>> checkpoint = Checkpoint(path, loader)
        >>> state = checkpoint.load()
        >>> for batch in loader:
        ...     state["global_step"] += 1
        ...     checkpoint.save(state)
        ...     break
        >>> again = DataLoader(range(6), batch_size=2)
        >>> Checkpoint(path, again).load()["global_step"], next(iter(again))
        (1, tensor([2, 3]))
    """

    def __init__(
        self, path: str | os.PathLike[str], loader: Any = None, *, generators: bool = False
    ) -> None:
        self.path = os.path.realpath(path)  # what a link names is replaced, not the link
        self.loader = loader
        self.generators = generators

    def save(self, state: Mapping[str, Any]) -> None:
        """Write ``state``, which has ``epoch``, ``global_step``, ``epoch_step`` and ``running_loss``
        and whatever else is plain: numbers, texts, bytes, lists, dictionaries, tensors, arrays.

        Whatever happens meanwhile, the file is the last one or this one.

        Raises:
            ValueError, TypeError: ``state`` lacks something, or has what cannot be written.
            OSError: the file cannot be written; the last one is still there.
        """
        missing = [key for key in _BEGINNING if key not in state]
        if missing:
            raise ValueError(
                f"the state lacks {', '.join(missing)}: load() gives one to go on with"
            )
        text = json_values.dumps(dict(state))
        loader = json_values.dumps(None if self.loader is None else self.loader.state_dict())
        generators = json_values.dumps(_generators_now() if self.generators else None)
        loaders, generators = map(", ".join, zip(*_from_all((loader, generators)), strict=True))
        if _world()[0] == 0:
            head = f'"millhead": "checkpoint", "version": {_VERSION}, "state": {text}'
            tail = f'"loaders": [{loaders}], "generators": [{generators}]'
            _replace(self.path, f"{{{head}, {tail}}}\n")

    def load(self) -> dict[str, Any]:
        """The state that was written last, with the loader put where it was; the beginning where
        there is no file.

        Raises:
            millhead.Error: the file is no checkpoint, or cannot be read; on every rank.
            ValueError: the loader refuses its state: it is of another dataset.
        """
        found = why = None
        if _world()[0] == 0:
            try:
                found = self._read()
            except (OSError, ValueError) as error:
                why = getattr(error, "strerror", None) or str(error)
        # Only rank 0 need see the file.
        found, why = _from_all((found, why))[0]
        if why is not None:
            raise _error(
                "corrupt data",
                f"millhead: not a checkpoint that can be read: {why} ({self.path}): put a whole one "
                "there, or remove it to begin anew",
            )
        if found is None:
            return dict(_BEGINNING)
        if self.loader is not None:
            self._put_back(found["loaders"])
        if self.generators:
            self._put_generators_back(found["generators"])
        return {**_BEGINNING, **found["state"]}

    def _read(self) -> dict[str, Any] | None:
        try:
            found = json_values.loads(Path(self.path).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        if not isinstance(found, dict) or found.get("millhead") != "checkpoint":
            raise ValueError("something else wrote it")
        if found.get("version") != _VERSION:
            raise ValueError(f"it has version {found.get('version')!r}, not {_VERSION}")
        found.setdefault("generators", [])  # which older ones lack
        parts = [type(found.get(key)) for key in ("state", "loaders", "generators")]
        if parts != [dict, list, list]:
            raise ValueError("parts of it are missing")
        return found

    def _put_back(self, states: list[Any]) -> None:
        """Each rank's own state; that of rank 0 where there were more or fewer ranks."""
        rank, ranks = _world()
        if len(states) == ranks:
            state = states[rank]
        elif isinstance(getattr(self.loader, "dataset", None), IterableDataset):
            raise _error(
                "not supported",
                f"millhead: an iterable dataset cannot go on with {ranks} ranks where it had "
                f"{len(states)} ({self.path}): each has its own part of the samples",
            )
        else:
            state = states[0] if states else None
        if state is not None:
            self.loader.load_state_dict(state)

    def _put_generators_back(self, states: list[Any]) -> None:
        """Each rank's own. With more or fewer ranks there are none to go on with."""
        rank, ranks = _world()
        state = states[rank] if len(states) == ranks else None
        if state is None:
            of_others = f"those saved are of a world of {len(states)}, not {ranks}"
            advise(
                "no generators",
                "random generators stay as they are: "
                f"{of_others if any(states) else 'none were saved'} ({self.path}): seed them, "
                "if the run should be reproducible",
            )
            return
        try:
            _set_generators(state)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise _error(
                "corrupt data",
                f"millhead: the random generators saved for rank {rank} are damaged: {error} "
                f"({self.path}): load it with generators=False to go on without",
            ) from None


def _error(code: str, text: str) -> millhead.Error:
    error = millhead.Error(text)
    error.code = code
    return error


def _generators_now() -> dict[str, Any]:
    """This process's; those of CUDA only where it is in use: asking would begin to."""
    in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    cuda = torch.cuda.get_rng_state_all() if in_use else []
    return {"global": RngState.now().text, "cuda": cuda}


def _set_generators(state: dict[str, Any]) -> None:
    rng_state = RngState.decode(state["global"])
    if state["cuda"] and torch.cuda.is_available():  # there may be fewer devices than there were
        torch.cuda.set_rng_state_all(state["cuda"][: torch.cuda.device_count()])
    rng_state.put_back()


def _world() -> tuple[int, int]:
    """This process's rank, of how many."""
    alone = rank0_first.is_alone("Checkpoint")
    return (0, 1) if alone else (dist.get_rank(), dist.get_world_size())


def _from_all(mine: Any) -> list[Any]:
    return [mine] if rank0_first.is_alone("Checkpoint") else rank0_first.gather_from_all(mine)


def _replace(path: str, text: str) -> None:
    """Let a file have another text. It is on the disk before it has the name, and so is the name
    when this returns: a crash leaves the old file or the new one."""
    directory = os.path.dirname(path)
    os.makedirs(directory, exist_ok=True)
    unnamed = f"{path}.{os.getpid()}.new"
    try:
        with open(unnamed, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unnamed, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unnamed)
        raise
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # not every file system can, and the file is there
            os.fsync(opened)
    finally:
        os.close(opened)
