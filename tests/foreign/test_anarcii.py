"""ANARCII's models, from the package ``anarcii`` where that is there: equal logits and numbers, greedy as it decodes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

import anaphora as an

package = importlib.util.find_spec("anarcii")
pytestmark = pytest.mark.skipif(package is None, reason="anarcii is not installed")
HEAVY = (
    "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGG"
    "DGFYAMDYWGQGTLVTVSS"
)
LIGHT = "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYCQQHYTTPPTFGQGTKVEIK"


def of(kind: str, layers: int) -> tuple[Any, Any]:
    """Theirs, from the source of its module alone, and ours."""
    assert package is not None
    assert package.origin is not None
    folder = Path(package.origin).parent
    spec = importlib.util.spec_from_file_location("anarcii_model", folder / "inference" / "model.py")
    assert spec is not None
    assert spec.loader is not None
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    path = folder / "models" / kind / f"{kind}_4_{layers}_128_512.pt"
    tensors = torch.load(path, weights_only=True, map_location="cpu")
    sizes = (len(tensors["encoder.tok_embedding.weight"]), len(tensors["decoder.fc_out.weight"]))
    sides = [
        make(size, 128, layers, 4, 512, 0.25, "cpu")
        for make, size in zip((source.Encoder, source.Decoder), sizes, strict=True)
    ]
    theirs = source.S2S(*sides, 0, 0, "cpu")
    theirs.load_state_dict(tensors)
    return theirs.eval(), an.load(path, an.Translator, device="cpu")


@pytest.mark.parametrize(("kind", "layers"), [("antibody", 1), ("antibody", 2), ("tcr", 2), ("shark", 2)])
@torch.no_grad()
def test_logits_and_numbers_are_equal(kind: str, layers: int) -> None:
    theirs, m = of(kind, layers)
    texts = [HEAVY, LIGHT, HEAVY.replace("K", "Z")[:40]]
    known = "ACDEFGHIKLMNPQRSTVWXY"
    spelled = ["", "", "", "<SKIP>", *map(str, range(1, 129)), "X", *("ABGD" if kind == "tcr" else "HLK")]
    for text in texts:
        ids = [1, *(4 + known.index(one if one in known else "X") for one in text), 2]
        written, logits = greedy(theirs, ids)
        exact = greedy(theirs.double(), ids, written)[1]
        theirs.float()
        source, target = m.tokenizer_.sources([text])[0], m.tokenizer_.target
        order = [0, 2, 3, *range(4, target.size)]  # theirs have no unknown symbol
        given = (
            torch.tensor([[*source, 3]]),
            torch.tensor([len(source) + 1]),
            torch.tensor([[order[i] for i in written[:-1]]]),
        )
        found = m.model_(*given)[0][:, order]
        same = m.model_.double()(*given)[0][:, order]
        m.model_.float()
        assert float((same - exact).abs().max()) < 1e-5  # its √128 stays a float32
        own, other = (float((one - exact).abs().max()) for one in (found, logits))
        assert own <= max(3 * other, 1e-6)  # its attention is sharp: float32 is off by 0.01 of 40 in both
        ended = written[1 : written.index(2)] if 2 in written else written[1:]
        assert m.predict([text], max_length=len(ids))[0].split() == [spelled[i] for i in ended]


def greedy(theirs: Any, ids: list[int], forced: list[int] | None = None) -> tuple[list[int], torch.Tensor]:
    """What it writes, step by step as the package does, and the logits; fed with ``forced`` where that is given."""
    src = torch.tensor([ids])
    mask = theirs.make_src_mask(src)
    memory = theirs.encoder(src, mask)
    written, cache, logits = [1], None, []
    for place in range(len(ids)):
        pad, causal = theirs.make_trg_mask(torch.tensor([written]))
        out, cache = theirs.decoder(torch.tensor([written[-1:]]), memory, pad, causal, mask, cache)
        logits.append(out[0, -1])
        written.append(int(out[0, -1].argmax()) if forced is None else forced[place + 1])
    return written, torch.stack(logits)
