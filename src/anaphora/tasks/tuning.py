"""How an estimator begins with the weights of another model, and trains on from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anaphora.settings.tuning import TuningSettings
from anaphora.training import distributed
from anaphora.training.objective import Batches
from anaphora.training.run import RunFolder
from anaphora.training.tuning import NONE, Tuning, prepare
from anaphora.training.weights import save_weights, snapshot

if TYPE_CHECKING:
    from anaphora.tasks.estimator import Estimator


def usual_training(given: Mapping[str, Any], width: int) -> dict[str, Any]:
    """How a model of others of that ``width`` is trained on, unless settings say otherwise: a few passes in small steps.

    The rate of BERT's 768 is the usual 5e-5; narrower models take larger steps. What is new alone, or low-rank changes, can
    move faster.
    """
    rate = min(3e-4, max(2e-5, 5e-5 * 768 / width))
    rate = 1e-3 if given.get("lora") else 5e-3 if given.get("freeze") is True else rate
    length = {} if given.get("steps") or given.get("epochs") else {"epochs": 5.0}
    return {"lr": rate, "weight_decay": 0.01, "warmup": 50, "dropout": 0.1, **length}


def begin_weights(m: Estimator, run: RunFolder, *, resume: bool) -> None:
    """Give ``m.model_``, which is fresh, the weights that a run begins with; a run that goes on has them in its folder."""
    if resume and run.base.is_file():
        m.model_.load_state_dict({**snapshot(m.model_), **run.load_base()})
    elif not (resume and run.has_checkpoints()):
        m.model_.load_state_dict({**snapshot(m.model_), **m._first_weights()})


def tuning_of(m: Estimator, run: RunFolder, batches: Batches, *, resume: bool) -> Tuning:
    """``m.model_`` made ready for what the settings say of tuning; what never moves is written to the run once."""
    s = m.settings_
    if not isinstance(s, TuningSettings):
        return NONE
    tuning = prepare(m.model_, s, parts=m.begun_parts, seed=s.seed, every=batches.per_epoch)  # type: ignore[attr-defined]
    if tuning.base and not (resume and run.base.is_file()):
        distributed.join(s.device).on_main(lambda: save_weights(run.base, tuning.base, facts={}))  # type: ignore[attr-defined]
    return tuning
