"""On a GPU the outputs for one input, and every number beside them, are the same bits alone and in any batch."""

from __future__ import annotations

import contextlib
import functools

import pytest
import torch
from invariant_cases import CASES

from anaphora.ops.invariant import active
from invariant_plain import Watch, on_the_cpu  # noqa: F401

pytest.importorskip("PIL")

# Marginals are the gradient of Σ log Z, in which rows do not meet; one hypothesis after the other is rescored by CTC.
_CRF, _CTC = {"sum", "mm"}, {"sum"}
ALONE = {
    "tag bilstm-crf": _CRF,
    "tag transformer": _CRF,
    "transcribe bilstm-ctc": _CTC,
    "transcribe joint": _CTC,
}


@functools.cache
def made(case, device):
    return CASES[case].made(device)


@pytest.mark.cuda
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("case", CASES)
def test_outputs_alone_and_in_batches_are_identical(case, precision, monkeypatch):
    """One by one, and in batches of 7, 64 and 256; and what ``score`` says follows from the same outputs."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)  # as users have it
    kind, model = CASES[case], made(case, "cuda")
    rows = kind.rows(256)
    inputs = [x for x, _ in rows]
    half = torch.autocast("cuda", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
    with half:
        together = kind.told(model, inputs)
        assert len({repr(one) for one in together}) > 2  # the model looks at its input
        for size, upto in ((1, 6), (7, 14), (64, 64)):
            for begin in range(0, upto, size):
                found = kind.told(model, inputs[begin : begin + size])
                assert found == together[begin : begin + size]
        assert kind.told(model, inputs[::-1]) == together[::-1]
        if kind.measured is not None:
            by_score, by_outputs = kind.measured(model, rows, together)
            assert by_score == by_outputs


@pytest.mark.cuda
def test_the_setting_turns_it_off():
    model = made("classify bilstm", "cuda")
    seen = []
    handle = model.model_.register_forward_hook(lambda *_: seen.append(active()))
    try:
        model.predict(["a b"])
        model.set_params(batch_invariant=False).predict(["a b"])
    finally:
        handle.remove()
        model.set_params(batch_invariant=True)
    assert seen == [True, False]


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("case", CASES)
def test_every_sum_of_a_prediction_goes_through_the_table(case):
    """On a CPU, where the replacements are torch's own functions: none is called but by them."""
    kind = CASES[case]
    model = made(case, "cpu")
    inputs = [x for x, _ in kind.rows(5)]
    kind.told(model, inputs)  # cells are traced at their first use
    watch = Watch()
    with watch:
        kind.told(model, inputs)
    assert watch.by_programs
    assert watch.found <= ALONE.get(case, set())
