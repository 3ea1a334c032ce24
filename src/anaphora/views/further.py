"""Further views, by the question they help to answer; `registry` has them all."""

from __future__ import annotations

from anaphora.views import (
    chain,
    connectivity,
    data,
    errors,
    jacobian,
    lens,
    prefixes,
    texts,
    trajectory,
    units,
)
from anaphora.views.view import described

_STATES = (
    "the model keeps no state for each place; recurrent networks, deep convolutions and Transformers do."
)
_DEV = "the run has no dev examples; train it with data that can be opened again."

FURTHER = (
    described(
        lens,
        lens.lens,
        "explain",
        what=("lens",),
        needs=("lens_log_probs", "lens_ranks", "lens"),
        without="its layers cannot each be read by the output; recurrent and Transformer presets of language can.",
    ),
    described(
        connectivity,
        connectivity.connectivity,
        "memory",
        what=("gradients",),
        any_of=("input_gradients", "source_gradients"),
        without="it holds no gradients of its input; captioners, decoders of sound, glimpses and counted models have none.",
    ),
    described(trajectory, trajectory.trajectory, "memory", any_of=("*states",), without=_STATES),
    described(
        jacobian,
        jacobian.jacobians,
        "memory",
        what=("jacobians",),
        needs=("jacobian_singular", "jacobian_eigenvalues", "jacobian_growth"),
        without="it has no single recurrent layer, read in one direction, whose state has at most 384 numbers.",
    ),
    described(
        units,
        units.units,
        "memory",
        of="dev",
        what=("units",),
        needs=("pooled_states", "places"),
        without=_DEV,
    ),
    described(
        chain,
        chain.crf,
        "search",
        needs=("chain_emissions", "chain_moves"),
        without="the model has no chain over its tags; the presets of `tag` that end in -crf have.",
    ),
    described(
        prefixes,
        prefixes.prefixes,
        "search",
        needs=("posteriors",),
        without="the model has no CTC outputs; `transcribe` has presets with them.",
    ),
    described(
        texts,
        texts.texts,
        "symbols",
        of="dev",
        what=("texts",),
        lines=True,
        needs=("embeddings", "projection", "spread"),
        without=_DEV,
    ),
    described(errors, errors.errors, "errors", of="dev", what=("judged",), needs=("judged",), without=_DEV),
    described(data, data.data, "data", of="dev", what=("data",), needs=("data",), without=_DEV),
)
