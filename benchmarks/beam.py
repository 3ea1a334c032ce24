"""Beam search with an encoder-decoder against Hugging Face Transformers and CTranslate2. Run: python benchmarks/beam.py [--json] [--times N]

6+6 layers of width 512, 32 000 symbols, random weights, the same in all; sources of 32 symbols, beam 5, 64 symbols out.
On the CPU 8 sources in single precision and one thread, all sides in turn, the least of N times; all must find the same
hypotheses before they are timed (eight-bit weights give other ones, and how many agree is printed). On a GPU, where there
is one, half precision, 1 and 32 sources. The peers are not installed with us: ``pip install transformers ctranslate2``
first, or their rows are left out.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from anaphora.models.seq2seq import Seq2Seq
from anaphora.tasks.translate.inference import search_outputs
from beam_peers import EOS, SYMBOLS, ctranslate2, hugging_face, random_model
from rows import row, show

SOURCES, LENGTH, BEAM, STEPS = 8, 32, 5, 64
Outputs = list[list[int]]


def draw_sources(count: int) -> list[list[int]]:
    draw = torch.Generator().manual_seed(1)
    return torch.randint(EOS + 1, SYMBOLS, (count, LENGTH), generator=draw).tolist()


def ours(model: Seq2Seq, sources: list[list[int]], **options: Any) -> Outputs:
    found = search_outputs(model, sources, beam=BEAM, max_length=STEPS, **options)
    return [nbest[0].tokens for nbest in found]


def theirs(peer: Any, sources: list[list[int]]) -> Outputs:
    """Hugging Face's; EOS ends our sources too."""
    source = torch.tensor([[*ids, EOS] for ids in sources], device=peer.device)
    options = {"num_beams": BEAM, "max_new_tokens": STEPS, "do_sample": False, "early_stopping": False}
    found: Tensor = peer.generate(source, attention_mask=torch.ones_like(source), **options)
    return [ids[1:] for ids in found.tolist()]


def translated(peer: Any, sources: list[list[int]]) -> Outputs:
    """CTranslate2's."""
    words = [[*map(str, ids), "</s>"] for ids in sources]
    found = peer.translate_batch(words, beam_size=BEAM, max_decoding_length=STEPS, length_penalty=1.0)
    return [[int(word) for word in result.hypotheses[0]] for result in found]


def least(runs: Mapping[str, Callable[[], Outputs]], times: int) -> dict[str, float]:
    """Seconds of the fastest run of each, run in turn."""
    best = dict.fromkeys(runs, float("inf"))
    for _ in range(times):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - begin)
    return best


def check(outputs: Mapping[str, Outputs], expected: Outputs) -> None:
    if len(set(map(tuple, expected))) < len(expected) or any(len(ids) != STEPS for ids in expected):
        raise SystemExit("the hypotheses are not all different and of full length")
    for name, found in outputs.items():
        if found != expected:
            same = sum(mine == other for mine, other in zip(found, expected, strict=True))
            raise SystemExit(f"{name} finds the same hypotheses as we do for {same} of {len(expected)} only")


def cpu_rows(times: int, peers: set[str]) -> list[dict[str, Any]]:
    model, sources = random_model(), draw_sources(SOURCES)
    runs: dict[str, Callable[[], Outputs]] = {
        "ours": lambda: ours(model, sources),
        "ours int8": lambda: ours(model, sources, int8=True),
    }
    if "transformers" in peers:
        marian = hugging_face(model)
        runs["transformers"] = lambda: theirs(marian, sources)
    with tempfile.TemporaryDirectory() as folder:
        if "ctranslate2" in peers:
            exact, rounded = (ctranslate2(model, folder, kind) for kind in ("float32", "int8"))
            runs["ctranslate2"] = lambda: translated(exact, sources)
            runs["ctranslate2 int8"] = lambda: translated(rounded, sources)
        outputs = {name: run() for name, run in runs.items()}
        expected = outputs["ours"]
        check({name: found for name, found in outputs.items() if "int8" not in name}, expected)
        seconds = least(runs, times)
    for name in (name for name in outputs if "int8" in name):
        same = sum(mine == other for mine, other in zip(outputs[name], expected, strict=True))
        print(f"{name}: {same} of {SOURCES} hypotheses as in single precision", file=sys.stderr)
    rate = {name: SOURCES * STEPS / taken for name, taken in seconds.items()}
    size = f"beam {BEAM}, {SOURCES} sources, {STEPS} symbols, CPU"
    compared = (
        (f"{size}, fp32", "ours", "transformers", 1.5),
        (f"{size}, fp32", "ours", "ctranslate2", 0.95),
        (f"{size}, int8", "ours int8", "transformers", 2.3),
        (f"{size}, int8", "ours int8", "ctranslate2 int8", None),
    )
    return [
        row(name, peer, rate[mine], rate[peer], "symbols/s", goal=goal, more_is_better=True)
        for name, mine, peer, goal in compared
        if peer in rate
    ]


def gpu_rows(times: int) -> list[dict[str, Any]]:
    """All must find the same hypotheses in single precision; in half precision, which is timed, sums round apart."""
    model = random_model()
    marian = hugging_face(model).cuda()
    model = model.cuda()
    check({"transformers": theirs(marian, draw_sources(SOURCES))}, ours(model, draw_sources(SOURCES)))
    marian, model = marian.half(), model.half()
    rows = []
    for count, goal in ((1, 8.0), (32, 4.0)):
        sources = draw_sources(count)
        runs = {"ours": lambda s=sources: ours(model, s), "transformers": lambda s=sources: theirs(marian, s)}
        mine, other = runs["ours"](), runs["transformers"]()
        same = sum(a == b for a, b in zip(mine, other, strict=True))
        print(f"GPU fp16, {count} sources: {same} hypotheses as transformers'", file=sys.stderr)
        seconds = least(runs, times)
        rates = (count * STEPS / seconds[name] for name in ("ours", "transformers"))
        name = f"beam {BEAM}, {count} sources, {STEPS} symbols, GPU fp16"
        rows.append(row(name, "transformers", *rates, "symbols/s", goal=goal, more_is_better=True))
    return rows


def installed(name: str) -> bool:
    from importlib.util import find_spec

    if find_spec(name) is None:
        print(f"{name} is not installed, so its rows are left out: pip install {name}", file=sys.stderr)
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=4)
    parser.add_argument("--gpu-only", action="store_true", help="leave the CPU rows out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    peers = {name for name in ("transformers", "ctranslate2") if installed(name)}
    rows = [] if options.gpu_only or not peers else cpu_rows(options.times, peers)
    if torch.cuda.is_available() and "transformers" in peers:
        rows += gpu_rows(options.times)
    show(rows, as_json=options.json)


if __name__ == "__main__":
    main()
