"""The beam that runs ahead on a device finds what the plain one finds; here its steps are run one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from anaphora.errors import AnaphoraError
from anaphora.models.decoders import TransformerDecoder
from anaphora.models.encoders import TransformerEncoder
from anaphora.models.seq2seq import Seq2Seq
from anaphora.models.static import StaticTransformer
from anaphora.nn import Embedding, Output, positions, transformer
from anaphora.nn.attention import MultiHead
from anaphora.search import beam
from anaphora.search._device import DeviceBeam, device_beam, device_greedy, has_room
from anaphora.search._plan import Plan
from anaphora.settings.search import USUAL
from anaphora.tasks.translate.inference import search_outputs

V, WIDTH, BOS, EOS = 13, 16, 2, 3


def model(norm_first: bool = False, sure: float = 2.0, rotary: float = 0.0) -> Seq2Seq:
    torch.manual_seed(4)
    embedding = Embedding(V, WIDTH, scaled=True)
    table = None if rotary else positions.Sinusoidal(WIDTH)

    def heads(own: bool = False) -> MultiHead:
        return MultiHead(WIDTH, 2, positions=positions.Rotary(share=rotary) if own and rotary else None)

    def feed() -> transformer.FeedForward:
        return transformer.FeedForward(WIDTH, 24)

    reader = transformer.TransformerEncoder(
        transformer.EncoderLayer(heads(True), feed(), norm_first=norm_first), 2
    )
    layer = transformer.DecoderLayer(heads(True), heads(), feed(), norm_first=norm_first)
    writer = transformer.TransformerDecoder(layer, 3)
    output = Output(WIDTH, V, tied=embedding)
    made = Seq2Seq(
        TransformerEncoder(embedding, reader, positions=table),
        TransformerDecoder(embedding, writer, output, positions=table),
    ).eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight.mul_(sure)
        output.bias[EOS] = 1.0
    return made


def sources(items: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(items)
    lengths = torch.randint(1, 8, (items,), generator=draw)
    return torch.randint(4, V, (items, int(lengths.max())), generator=draw), lengths


def plan(width: int, n_best: int, **more: Any) -> Plan:
    return Plan(USUAL.model_copy(update=more), EOS, width, n_best)


def check(made: Seq2Seq, items: int, width: int, device: str, tolerance: float, **options: Any) -> int:
    """Compares the two searches; how many different lengths there were."""
    source, lengths = (x.to(device) for x in sources(items))
    start = torch.full((items,), BOS, device=device)
    limits = 4 + 3 * lengths
    lower = options.pop("min_length", 0)
    common: dict[str, Any] = {"start": start, "eos": EOS, "max_length": limits, "min_length": lower}
    with torch.no_grad():
        memory = made.encode(source, lengths)
        expected = beam(
            made.decoder.step, made.start(memory), width=width, n_best=width, logits=True, **common, **options
        )
        found = device_beam(
            StaticTransformer, made, source, lengths, plan=plan(width, width, **options), **common
        )
    for mine, theirs in zip(found, expected, strict=True):
        assert [h.tokens for h in mine] == [h.tokens for h in theirs]
        assert [h.finished for h in mine] == [h.finished for h in theirs]
        assert [h.score for h in mine] == pytest.approx([h.score for h in theirs], abs=tolerance)
        for one, other in zip(mine, theirs, strict=True):
            assert one.steps == pytest.approx(other.steps, abs=tolerance)
    return len({len(h.tokens) for nbest in found for h in nbest})


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize(("items", "width"), [(1, 1), (1, 5), (5, 4), (8, 3), (3, 20)])
def test_hypotheses_are_those_of_the_plain_beam(norm_first: bool, items: int, width: int) -> None:
    made = model(norm_first)
    lengths = check(made, items, width, "cpu", 1e-4)
    assert items * width <= 5 or lengths > 2
    assert check(made, items, width, "cpu", 1e-4) == lengths  # again, in the same buffers


def greedy(made: Seq2Seq, items: int, device: str) -> None:
    """Compares the greedy search with the plain beam of one, for limits that cut some outputs off."""
    source, lengths = (x.to(device) for x in sources(items))
    start, limits = torch.full((items,), BOS, device=device), 1 + 3 * lengths
    with torch.no_grad():
        state = made.start(made.encode(source, lengths))
        plain = beam(made.decoder.step, state, start=start, eos=EOS, max_length=limits, width=1, logits=True)
        found = device_greedy(
            StaticTransformer, made, source, lengths, start=start, eos=EOS, limits=limits.tolist()
        )
    assert found == [list(nbest[0].tokens) for nbest in plain]
    assert len(set(map(len, found))) > 1


@pytest.mark.parametrize("items", [5, 8, 40])
def test_greedy_outputs_are_those_of_a_beam_of_one(items: int) -> None:
    made = model(norm_first=True, rotary=1.0)
    greedy(made, items, "cpu")
    greedy(model(), items, "cpu")


def test_a_greedy_search_refuses_numbers_that_are_none() -> None:
    made, (source, lengths) = model(), sources(2)
    with torch.no_grad():
        made.encoder.embedding.weight[4:].fill_(float("nan"))
    start = torch.tensor([BOS, BOS])
    with pytest.raises(AnaphoraError, match="NaN"):
        device_greedy(StaticTransformer, made, source, lengths, start=start, eos=EOS, limits=[5, 5])


@pytest.mark.cuda
def test_greedy_outputs_on_a_gpu() -> None:
    for made in (model().cuda(), model(norm_first=True, rotary=1.0).cuda()):
        for items in (5, 8, 40, 5):
            greedy(made, items, "cuda")


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_rotary_positions_are_those_of_the_plain_beam(share: float) -> None:
    made = model(norm_first=True, rotary=share)
    assert StaticTransformer.fits(made)
    assert check(made, 5, 4, "cpu", 1e-4) > 2
    check(made, 5, 4, "cpu", 1e-4)


@pytest.mark.parametrize(
    "options",
    [
        {"min_length": 4},
        {"length_penalty": 0.0},
        {"normalisation": "gnmt", "length_penalty": 0.6},
        {"normalisation": "reward"},
        {"stopping": "first"},
    ],
)
def test_options_do_what_they_do_in_the_plain_beam(options: dict[str, Any]) -> None:
    check(model(), 5, 4, "cpu", 1e-4, **options)


def test_weights_that_change_are_seen() -> None:
    made = model()
    check(made, 3, 4, "cpu", 1e-4)
    with torch.no_grad():
        made.decoder.embedding.weight.add_(0.3)
    check(made, 3, 4, "cpu", 1e-4)


def test_numbers_that_are_none_are_told() -> None:
    made = model()
    source, lengths = sources(2)
    with torch.no_grad():
        made.encoder.embedding.weight[4:].fill_(float("nan"))
    with pytest.raises(AnaphoraError, match="step returned NaN"):
        device_beam(
            StaticTransformer,
            made,
            source,
            lengths,
            start=torch.tensor([BOS, BOS]),
            eos=EOS,
            max_length=5,
            plan=plan(2, 2),
        )


def test_which_models_fit() -> None:
    made = model()
    assert StaticTransformer.fits(made)
    made.decoder.positions = positions.Learned(WIDTH, 9)
    assert not StaticTransformer.fits(made)


def test_under_autocast_the_plain_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=2**33)
    )
    size = {"items": 8, "width": 5, "longest": 50}
    device = torch.device("cuda")
    assert has_room(StaticTransformer, model(), device, **size)
    assert not has_room(StaticTransformer, model(), device, **{**size, "longest": 10**6})
    assert not has_room(StaticTransformer, model(), torch.device("cpu"), **size)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: True)
    assert not has_room(StaticTransformer, model(), device, **size)


@pytest.mark.cuda
@pytest.mark.parametrize(("norm_first", "rotary"), [(False, 0.0), (True, 0.0), (True, 1.0)])
@pytest.mark.parametrize(("items", "width"), [(1, 1), (1, 5), (5, 4), (8, 3)])
def test_on_a_gpu(norm_first: bool, rotary: float, items: int, width: int) -> None:
    """The captured step against the plain beam on the same GPU, twice in the same buffers."""
    made = model(norm_first, rotary=rotary).cuda()
    for _ in range(2):
        check(made, items, width, "cuda", 1e-3)
    check(made, items, width, "cuda", 1e-3, min_length=3)


@pytest.mark.cuda
@torch.no_grad()
def test_a_search_under_autocast_is_a_search() -> None:
    made = model().cuda()
    sources = [[4, 5, 6], [7], [8, 9]]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found = search_outputs(made, sources, beam=3, max_length=9)
    assert [len(nbest) for nbest in found] == [1, 1, 1]


@pytest.mark.cuda
@torch.no_grad()
def test_nothing_waits_for_the_gpu_while_steps_are_queued() -> None:
    made = model().cuda()
    static = StaticTransformer(made, items=2, width=3, places=16, capacity=64)
    search = DeviceBeam(static, torch.device("cuda"), eos=EOS)
    before = int(search.length)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            search._advance()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert int(search.length) == before + 5
