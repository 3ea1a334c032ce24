"""Many machines by Ray (extra ``ray``): the server of runs as a Ray Serve application, predictions in Ray Data, training by Ray Train.

    from ray import serve
    serve.run(anaphora.ray.application(["runs/reviews"], replicas=(1, 8)))

    ray.data.read_text("lines.txt").map_batches(
        anaphora.ray.Predictor, fn_constructor_kwargs={"run": "runs/reviews"}, concurrency=(1, 8)
    )

    anaphora.ray.trainer("translate", "train.tsv", out="/shared/runs/en-de", workers=4, gpus=True).fit()

Run folders and data must be on a disk that all machines see. Ray is imported when a function here is called.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.errors import AnaphoraError, SettingsError
from anaphora.files.writing import scratch_folder

__all__ = ["Predictor", "application", "trainer"]


def application(
    runs: Sequence[str],
    *,
    replicas: int | tuple[int, int] = (1, 4),
    requests: int = 32,
    cpus: float = 1.0,
    gpus: float = 0.0,
    device: str = "auto",
    token: str | None = None,
    **limits: Any,
) -> Any:
    """The application of ``anaphora serve RUN…`` for ``serve.run``; each replica loads all ``runs`` (a folder, or NAME=FOLDER).

    ``replicas``: how many, or the fewest and the most, between which Ray scales so that each answers about ``requests`` at a time.
    ``cpus`` and ``gpus`` are what one replica takes. ``token`` must then be sent as ``Authorization: Bearer``. ``limits`` are those of
    `anaphora.serving.limits.Limits`. A run folder that is replaced is served after the next deployment.
    Raises a `SettingsError` for numbers that make no sense, an `AnaphoraError` for a folder that holds no run.
    """
    from anaphora.serving.limits import Limits
    from anaphora.serving.naming import named_folders
    from anaphora.tasks.recipe import Recipe

    serve = _ray("serve")
    least, most = (replicas, replicas) if isinstance(replicas, int) else replicas
    if not 1 <= least <= most or requests < 1:
        raise SettingsError([f"replicas = {replicas}, requests = {requests}: give 1 ≤ fewest ≤ most."])
    folders = {name: folder.resolve() for name, folder in named_folders(runs).items()}
    for folder in folders.values():
        Recipe.read(folder)  # a folder without a run is a mistake already
    bounds = Limits(**{"reload_seconds": 0.0, **limits})

    def build() -> Any:
        """In the replica: load the runs, and give the guarded application over them."""
        from anaphora.serving.app import create_app
        from anaphora.serving.metrics import Metrics
        from anaphora.serving.runs import Runs

        app, _ = create_app(Runs(folders, bounds, Metrics(), device=device), token=token)
        return app

    deployment = serve.deployment(
        serve.ingress(build)(),
        name="anaphora",
        ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
        max_ongoing_requests=bounds.queue,
        graceful_shutdown_timeout_s=bounds.grace,
        **_scaled(least, most, requests),
    )
    return deployment.bind()


def _scaled(least: int, most: int, requests: int) -> dict[str, Any]:
    if least == most:
        return {"num_replicas": least}
    return {
        "autoscaling_config": {
            "min_replicas": least,
            "max_replicas": most,
            "initial_replicas": least,
            "target_ongoing_requests": requests,
        }
    }


class Predictor:
    """For ``map_batches`` of Ray Data: adds what ``predict`` gives for the inputs of a column.

    ``run``: a run folder; ``column``: the inputs; ``output``: the column of the answers. ``options`` are those of ``predict``. Answers that
    are numbers or texts become an array of them, others an array of objects.

        dataset.map_batches(Predictor, fn_constructor_kwargs={"run": "runs/reviews"}, batch_size=256, concurrency=2)
    """

    def __init__(
        self,
        run: str,
        column: str = "text",
        output: str = "prediction",
        *,
        device: str = "auto",
        threads: int = 1,
        **options: Any,
    ):
        import torch

        from anaphora.tasks.load import load

        torch.set_num_threads(threads)  # Ray starts a process for every core it gives
        self.column, self.output, self.options = column, output, options
        self.model = load(run, device=device)

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch, a dictionary of columns, with one more."""
        if self.column not in batch:
            raise AnaphoraError(
                f"the data have no column {self.column}; they have {', '.join(batch)}: name one as column=."
            )
        values = batch[self.column]
        answers = self.model.predict(
            values.tolist() if values.dtype.kind in "UO" else list(values), **self.options
        )
        return {**batch, self.output: _column(answers)}


def _column(answers: Sequence[Any]) -> np.ndarray[Any, Any]:
    if isinstance(answers, np.ndarray):
        return answers
    if all(isinstance(one, str | int | float | np.generic) for one in answers):
        return np.array(answers)
    found = np.empty(len(answers), dtype=object)
    found[:] = [one.to_dict() if hasattr(one, "to_dict") else one for one in answers]
    return found


def trainer(
    task: str,
    data: Any,
    *,
    out: str | Path,
    valid: Any | None = None,
    workers: int = 2,
    gpus: bool = False,
    cpus: float = 1.0,
    force: bool = False,
    **settings: Any,
) -> Any:
    """A ``TorchTrainer`` whose ``fit()`` trains ``task`` in ``workers`` processes, as ``torchrun`` does; its result has the dev metrics,
    and the trained model as its checkpoint.

    ``data``, ``valid`` and ``out`` are what ``fit`` of the task takes; files must be on a disk that all processes see. A run that is in ``out`` already,
    and was interrupted, goes on. ``settings`` are those of the task; ``shard="full"`` divides the weights among the processes.
    Raises a `SettingsError` for settings that cannot be used, before anything is started.
    """
    from anaphora.tasks.registry import estimator

    train, torch_ = _ray("train"), _ray("train.torch")
    kind = estimator(task)
    kind(**settings)  # mistakes are reported here
    place = Path(out).resolve()

    def loop() -> None:
        model = kind(**settings)
        begun = (place / "config.json").is_file() and not force
        found = kind.resume(place) if begun else model.fit(data, valid=valid, out=place, force=force)
        result = found.result_
        metrics = {"steps": result.steps, **{f"dev_{name}": value for name, value in result.metrics.items()}}
        with scratch_folder() as folder:
            first = train.get_context().get_world_rank() == 0
            if first:  # Ray keeps metrics with a checkpoint: the trained model alone
                found.save(folder, force=True)
            train.report(metrics, checkpoint=train.Checkpoint.from_directory(folder) if first else None)

    scaling = train.ScalingConfig(
        num_workers=workers, use_gpu=gpus, resources_per_worker={"CPU": cpus, **({"GPU": 1} if gpus else {})}
    )
    return torch_.TorchTrainer(loop, scaling_config=scaling)


def _ray(name: str) -> Any:
    try:
        return importlib.import_module(f"ray.{name}")
    except ModuleNotFoundError as error:
        raise AnaphoraError(
            f"this needs Ray, of which {error.name} is missing; install it with: pip install 'anaphora[ray]'"
        ) from None
