"""What every answer of an estimator passes through: one that does not depend on its batch, from kernels that did not give up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

from torch import nn

from anaphora.errors import DataError
from anaphora.inference.session import NotFiniteError
from anaphora.native.cuda import check_kernels
from anaphora.ops.invariant import batch_invariant

Method = TypeVar("Method", bound=Callable[..., Any])
Item = TypeVar("Item")


def whatever_the_batch(method: Method) -> Method:
    """A method of an estimator whose outputs do not depend on the batch, on a GPU either: the setting ``batch_invariant``.

    Not for generators: what their caller does in between would run in the same mode.
    """

    @wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        model = getattr(self, "model_", None)
        weight = next(model.parameters(), None) if isinstance(model, nn.Module) else None
        if weight is None:
            return method(self, *args, **kwargs)
        with batch_invariant(weight.device, self.settings_.batch_invariant):
            return method(self, *args, **kwargs)

    return cast("Method", wrapped)


def probing(method: Method) -> Method:
    """``probe`` of an estimator: `whatever_the_batch`, and the trace keeps ``what``, so that a view can tell what a model lacks
    from what was not requested."""
    alike = whatever_the_batch(method)

    @wraps(method)
    def wrapped(self: Any, *args: Any, what: Sequence[str] = (), **kwargs: Any) -> Any:
        trace = alike(self, *args, what=what, **kwargs)
        if what:
            trace.facts["asked"] = list(what)
        return trace

    return cast("Method", wrapped)


ANSWERS = {
    "predict",
    "predict_proba",
    "probe",
    "rank",
    "read",
    "sample",
    "score",
    "search",
    "tag",
    "transcribe",
}


def answers_checked(items: Iterator[Item]) -> Iterator[Item]:
    """The items, with `check_kernels` before each; where a prediction is not finite, the error counts from the first."""
    done = 0
    try:
        for item in items:
            check_kernels()
            yield item
            done += 1
    except NotFiniteError as error:  # it counts within a batch
        if not done:
            raise
        raise DataError(f"after line {done}: {error}") from None


def kernels_checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """``method``, with `check_kernels` before its result, or each item of an iterator, is returned."""

    @wraps(method)
    def checked(*given: Any, **options: Any) -> Any:
        result = method(*given, **options)
        if isinstance(result, Iterator):
            return answers_checked(result)
        check_kernels()
        return result

    return checked
