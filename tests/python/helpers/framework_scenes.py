"""Training as frameworks do it: each scene returns what its user sees of the loaders' batches.

A scene is told the class to build loaders of, where the framework leaves that to the user. It is run
once with torch's iterators and once with ours, from the same seeds; see frameworks.py.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import millhead.torch
import numpy as np
import torch
from torch.utils.data import Dataset, DistributedSampler, IterableDataset


@dataclass(frozen=True)
class Sizes:
    """How much of it."""

    samples: int = 26  # no multiple of the batch size, nor with it of 2 or 4 ranks
    batch_size: int = 4
    workers: int = 2
    epochs: int = 2


Scene = Callable[[Any, Sizes], Any]


def keeps_class(scene: Scene) -> Scene:
    """The loaders of this scene stay of the user's class: it is played with ours besides install()."""
    scene.keeps_class = True  # type: ignore[attr-defined]
    return scene


class Noisy(Dataset[Any]):
    """Samples that draw from every generator, as random augmentation does."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        noise = torch.rand(5) + np.random.rand() + random.random()
        return {"index": index, "x": noise, "y": np.float32(index)}


class Stream(IterableDataset[Any]):
    """The same samples one after the other."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[Any]:
        dataset = Noisy(self.samples)
        for index in range(self.samples):
            yield dataset[index]


def regression() -> torch.nn.Module:
    return torch.nn.Linear(5, 1)


def loss_of(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    return torch.nn.functional.mse_loss(model(batch["x"])[:, 0], batch["y"])


def weights(model: torch.nn.Module) -> list[torch.Tensor]:
    """What was learned: equal to the last bit where the batches were."""
    return [value.detach().clone() for value in model.parameters()]


# --- Accelerate ---


def _prepared(cls: Any, sizes: Sizes, dataset: Any = None, **configuration: Any) -> Any:
    from accelerate import Accelerator, DataLoaderConfiguration

    options: dict[str, Any] = {"num_workers": sizes.workers, "batch_size": sizes.batch_size}
    if dataset is None:
        dataset = Noisy(sizes.samples)
        options["shuffle"] = True
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**configuration))
    return accelerator, accelerator.prepare(cls(dataset, **options))


def accelerate_training(cls: Any, sizes: Sizes) -> Any:
    """Epochs, and training until the weights tell."""
    accelerator, loader = _prepared(cls, sizes)
    model = accelerator.prepare(regression())
    optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.01))
    seen = []
    for _ in range(sizes.epochs):
        for batch in loader:
            seen.append(batch)
            optimizer.zero_grad()
            accelerator.backward(loss_of(model, batch))
            optimizer.step()
    return (
        seen,
        [accelerator.gather_for_metrics(batch["index"]) for batch in loader],
        weights(model),
    )


def accelerate_skipping(cls: Any, sizes: Sizes) -> Any:
    accelerator, loader = _prepared(cls, sizes)
    return list(accelerator.skip_first_batches(loader, 2)), list(loader)


def accelerate_without_workers(cls: Any, sizes: Sizes) -> Any:
    return list(_prepared(cls, replace(sizes, workers=0))[1])


def accelerate_seedable(cls: Any, sizes: Sizes) -> Any:
    loader = _prepared(cls, sizes, use_seedable_sampler=True, data_seed=3)[1]
    return [list(loader) for _ in range(sizes.epochs)]


def _splittable(sizes: Sizes) -> Sizes:
    """With a batch size that Accelerate can split among its two processes."""
    return replace(sizes, batch_size=sizes.batch_size + sizes.batch_size % 2)


def accelerate_splitting(cls: Any, sizes: Sizes) -> Any:
    return list(_prepared(cls, _splittable(sizes), split_batches=True)[1])


def accelerate_uneven(cls: Any, sizes: Sizes) -> Any:
    return list(_prepared(cls, sizes, even_batches=False)[1])


def accelerate_dispatching(cls: Any, sizes: Sizes) -> Any:
    return list(_prepared(cls, sizes, dispatch_batches=True)[1])


def accelerate_dispatching_a_stream(cls: Any, sizes: Sizes) -> Any:
    stream = Stream(sizes.samples)
    options = {"dispatch_batches": True, "split_batches": True}
    return list(_prepared(cls, _splittable(sizes), stream, **options)[1])


def accelerate_sharding_a_stream(cls: Any, sizes: Sizes) -> Any:
    return list(_prepared(cls, sizes, Stream(sizes.samples), dispatch_batches=False)[1])


# --- Lightning ---


def _module(seen: list[Any]) -> Any:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = regression()

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            seen.append(batch)
            return loss_of(self.model, batch)

        def validation_step(self, batch: Any, _: int) -> None:
            seen.append(batch)

        def predict_step(self, batch: Any, _: int) -> torch.Tensor:
            seen.append(batch)
            result: torch.Tensor = self.model(batch["x"])
            return result

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    return Module()


def _trainer(ranks: int, **options: Any) -> Any:
    import lightning

    return lightning.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **options,
    )


def _own_arguments(cls: Any) -> dict[str, Any]:
    """Arguments that torch's class does not have: they must survive when a loader is rebuilt."""
    ours = issubclass(cls, millhead.torch.DataLoader)
    return {"dispatch": "batch", "memory": "64MB"} if ours else {}


def _check_rebuilt(loader: Any, cls: Any, sampler: type) -> None:
    assert type(loader) is cls
    assert isinstance(loader.batch_sampler.sampler, sampler), loader.batch_sampler.sampler
    for name, value in _own_arguments(cls).items():
        assert getattr(loader, name) == value


def _lightning(cls: Any, sizes: Sizes, ranks: int) -> Any:
    from lightning.pytorch.overrides.distributed import UnrepeatedDistributedSamplerWrapper

    data = Noisy(sizes.samples)
    options: dict[str, Any] = {
        "batch_size": sizes.batch_size,
        "num_workers": sizes.workers,
        **_own_arguments(cls),
    }
    seen: list[Any] = []
    module = _module(seen)
    trainer = _trainer(ranks, max_epochs=sizes.epochs)
    trainer.fit(
        module,
        cls(data, shuffle=True, persistent_workers=sizes.workers > 0, **options),
        cls(data, **options),
    )
    if ranks > 1:  # the sampler was injected: the loader is another one, made of its attributes
        _check_rebuilt(trainer.train_dataloader, cls, DistributedSampler)
        _check_rebuilt(trainer.val_dataloaders, cls, DistributedSampler)
    predictions = trainer.predict(module, cls(data, **options))
    if ranks > 1:
        _check_rebuilt(trainer.predict_dataloaders, cls, UnrepeatedDistributedSamplerWrapper)
    return seen, predictions, weights(module)


@keeps_class
def lightning_alone(cls: Any, sizes: Sizes) -> Any:
    return _lightning(cls, sizes, 1)


@keeps_class
def lightning_on_two(cls: Any, sizes: Sizes) -> Any:
    return _lightning(cls, sizes, 2)


# --- the Trainer of transformers ---


class Tokens(Dataset[Any]):
    """Blocks of tokens, as for a language model."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> Any:
        ids = torch.randint(0, 32, (8,))
        return {"input_ids": ids, "labels": ids}


def transformers_trainer(cls: Any, sizes: Sizes) -> Any:
    """Training and evaluation; the Trainer builds its loaders itself."""
    import transformers

    seen: list[Any] = []

    class Trainer(transformers.Trainer):  # type: ignore[misc]
        def training_step(self, model: Any, inputs: Any, *rest: Any, **more: Any) -> Any:
            seen.append(dict(inputs))
            return super().training_step(model, inputs, *rest, **more)

        def prediction_step(self, model: Any, inputs: Any, *rest: Any, **more: Any) -> Any:
            seen.append(dict(inputs))
            return super().prediction_step(model, inputs, *rest, **more)

    configuration = transformers.GPT2Config(
        vocab_size=32, n_positions=8, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )
    model = transformers.GPT2LMHeadModel(configuration)
    with tempfile.TemporaryDirectory() as directory:
        arguments = transformers.TrainingArguments(
            output_dir=directory,
            use_cpu=True,
            num_train_epochs=sizes.epochs,
            per_device_train_batch_size=sizes.batch_size,
            per_device_eval_batch_size=sizes.batch_size,
            dataloader_num_workers=sizes.workers,
            dataloader_pin_memory=False,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
        )
        data = Tokens(sizes.samples)
        trainer = Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data)
        trainer.train()
        metrics = trainer.evaluate()
    return seen, metrics["eval_loss"], weights(model)


# --- Ignite ---


def _ignite(engine: Any, loader: Any, sizes: Sizes, seen: list[Any]) -> Any:
    engine.run(loader, max_epochs=sizes.epochs)
    return seen, engine.state.iteration, engine.state.epoch


@keeps_class
def ignite_engine(cls: Any, sizes: Sizes) -> Any:
    from ignite.engine import Engine

    seen: list[Any] = []
    loader = cls(
        Noisy(sizes.samples),
        batch_size=sizes.batch_size,
        shuffle=True,
        num_workers=sizes.workers,
        persistent_workers=sizes.workers > 0,
    )
    return _ignite(Engine(lambda _, batch: seen.append(batch)), loader, sizes, seen)


@keeps_class
def ignite_deterministic(cls: Any, sizes: Sizes) -> Any:
    """This engine rebuilds the loader from its attributes, with a batch sampler of its own."""
    from ignite.engine.deterministic import DeterministicEngine, ReproducibleBatchSampler

    seen: list[Any] = []
    engine = DeterministicEngine(lambda _, batch: seen.append(batch))
    loader = cls(
        Noisy(sizes.samples),
        batch_size=sizes.batch_size,
        shuffle=True,
        num_workers=sizes.workers,
        **_own_arguments(cls),
    )
    result = _ignite(engine, loader, sizes, seen)
    rebuilt: Any = engine.state.dataloader
    assert type(rebuilt) is cls
    assert isinstance(rebuilt.batch_sampler, ReproducibleBatchSampler)
    for name, value in _own_arguments(cls).items():
        assert getattr(rebuilt, name) == value
    return result


def ignite_auto(cls: Any, sizes: Sizes) -> Any:
    """Ignite's own function builds the loader."""
    import ignite.distributed as idist
    from ignite.engine import Engine

    seen: list[Any] = []
    loader = idist.auto_dataloader(
        Noisy(sizes.samples),
        batch_size=sizes.batch_size,
        shuffle=True,
        num_workers=sizes.workers,
    )
    return _ignite(Engine(lambda _, batch: seen.append(batch)), loader, sizes, seen)


# --- torch.distributed ---


@keeps_class
def distributed(cls: Any, sizes: Sizes) -> Any:
    """DistributedSampler and gloo; the ranks agree on what they have seen together."""
    import torch.distributed as dist

    if not dist.is_initialized():
        dist.init_process_group("gloo")
    data = Noisy(sizes.samples)
    sampler: Any = DistributedSampler(data, seed=3)
    loader = cls(data, sizes.batch_size, sampler=sampler, num_workers=1)
    model = torch.nn.parallel.DistributedDataParallel(regression())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    seen = []
    for epoch in range(sizes.epochs):
        sampler.set_epoch(epoch)
        for batch in loader:
            seen.append(batch)
            optimizer.zero_grad()
            loss_of(model, batch).backward()
            optimizer.step()
    indices = torch.cat([batch["index"] for batch in seen])
    everyones = [torch.empty_like(indices) for _ in range(dist.get_world_size())]
    dist.all_gather(everyones, indices)
    assert set(torch.cat(everyones).tolist()) == set(range(sizes.samples))
    return seen, everyones, weights(model)


# --- the profiler ---


@keeps_class
def profiled(cls: Any, sizes: Sizes) -> Any:
    """Batches, and the rows that the profiler has for the loader: names and counts."""
    from torch.profiler import ProfilerActivity, profile

    found = []
    for workers in (0, sizes.workers):
        loader = cls(Noisy(sizes.samples), batch_size=sizes.batch_size, num_workers=workers)
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            batches = list(loader)
        rows = [
            (row.key, row.count)
            for row in profiler.key_averages()
            if row.key.startswith("enumerate(DataLoader)#")
        ]
        kind = "_MultiProcessing" if workers else "_SingleProcess"
        assert [row[0] for row in rows] == [f"enumerate(DataLoader)#{kind}DataLoaderIter.__next__"]
        found.append((batches, rows))
    return found


@dataclass(frozen=True)
class Framework:
    """What runs under one name: where, and which scenes."""

    module: str
    scenes: tuple[Scene, ...]
    ranks: int = 1
    #: How more than one rank is started: "torchrun", or "lightning": by Lightning itself.
    launcher: str = "torchrun"


FRAMEWORKS = {
    "accelerate": Framework(
        "accelerate", (accelerate_training, accelerate_skipping, accelerate_without_workers)
    ),
    "accelerate-2-ranks": Framework(
        "accelerate",
        (
            accelerate_training,
            accelerate_skipping,
            accelerate_seedable,
            accelerate_splitting,
            accelerate_uneven,
            accelerate_dispatching,
            accelerate_dispatching_a_stream,
            accelerate_sharding_a_stream,
        ),
        ranks=2,
    ),
    "lightning": Framework("lightning", (lightning_alone,)),
    "lightning-2-ranks": Framework("lightning", (lightning_on_two,), ranks=2, launcher="lightning"),
    "transformers": Framework("transformers", (transformers_trainer,)),
    "ignite": Framework("ignite.engine", (ignite_engine, ignite_deterministic, ignite_auto)),
    "distributed-2-ranks": Framework("torch.distributed", (distributed,), ranks=2),
    "distributed-4-ranks": Framework("torch.distributed", (distributed,), ranks=4),
    "profiler": Framework("torch.profiler", (profiled,)),
}
