"""Print a SHA-256 of the outputs and gradients of every fast path, and of the text of every generated kernel.

    tools/digests.py [--isa baseline,avx2,avx512] [--text] [--only WORD] > after
    PYTHONPATH=../old/src tools/digests.py > before
    tools/digests.py --compare before after

A change that is only a restructuring prints the same lines before and after. Each instruction set runs in a process of its
own, with the limits of ATen and oneDNN tied to it and one thread. ``--text`` prints the texts alone, which no instruction set
changes. Equality is promised within one path on one machine, never between two paths.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib
import itertools
import os
import pkgutil
import random
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

TIED = {"baseline": ("default", "SSE41"), "avx2": ("avx2", "AVX2"), "avx512": ("avx512", "AVX512_CORE")}
"""The word of ``ANAPHORA_ISA`` with those of ``ATEN_CPU_CAPABILITY`` and ``ONEDNN_MAX_CPU_ISA``."""
HERE = Path(__file__).resolve().parent.parent
DRAWN = 200
Case = tuple[str, Callable[[], Any]]


# ------------------------------------------------------------------ contact with internals
@cache
def _sources() -> dict[str, str]:
    import anaphora

    root = Path(str(anaphora.__file__)).parent
    return {
        "anaphora." + str(path.relative_to(root))[:-3].replace("/", "."): path.read_text()
        for path in sorted(root.rglob("*.py"))
    }


@cache
def internal(name: str, beside: str = "", near: str = "") -> Any:
    """Return what is called ``name`` on the top level of the one module that also defines ``beside`` and whose path holds
    ``near``, wherever that module stands today."""

    def defined(word: str, text: str) -> bool:
        return re.search(rf"^(def|class) {word}\b|^{word}\b.*=", text, re.MULTILINE) is not None

    found = [
        module
        for module, text in _sources().items()
        if defined(name, text) and (not beside or defined(beside, text)) and near in module
    ]
    if len(found) != 1:
        raise LookupError(f"{name} beside {beside or 'anything'} is defined in {found or 'no module'}")
    return getattr(importlib.import_module(found[0].removesuffix(".__init__")), name)


# ------------------------------------------------------------------ digests of values
def digest(value: Any) -> str:
    """Return the SHA-256 of everything in a nested value, floats by their bits."""
    import numpy as np
    import torch

    text = hashlib.sha256()

    def add(part: Any) -> None:
        if isinstance(part, torch.Tensor):
            part = part.detach().contiguous().cpu().numpy()
        if isinstance(part, np.ndarray):
            text.update(f"{part.dtype}{part.shape}".encode() + np.ascontiguousarray(part).tobytes())
        elif dataclasses.is_dataclass(part):
            add([getattr(part, field.name) for field in dataclasses.fields(part)])
        elif isinstance(part, dict):
            add(sorted(part.items()))
        elif isinstance(part, list | tuple):
            text.update(f"[{len(part)}".encode())
            for inner in part:
                add(inner)
        elif not isinstance(part, str | int | float | None):
            raise TypeError(f"no digest of a {type(part).__name__}")
        else:
            text.update((part.hex() if isinstance(part, float) else str(part)).encode() + b";")

    add(value)
    return text.hexdigest()


def with_gradients(call: Callable[[], Any], leaves: Iterable[Any]) -> list[Any]:
    """Return the outputs of a call and the gradients of a fixed weighted sum of them."""
    import torch

    outputs = call()
    outputs = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
    outputs = [t for o in outputs for t in (o if isinstance(o, tuple | list) else [o])]
    torch.manual_seed(11)
    floats = [o for o in outputs if o.is_floating_point() and o.requires_grad]
    loss = sum((o * torch.randn_like(o)).sum() for o in floats)
    return [*outputs, *torch.autograd.grad(loss, [t for t in leaves if t.requires_grad], allow_unused=True)]


def layer_case(layer: Any, inputs: int, dtype: Any, ragged: bool, grad: bool = True) -> list[Any]:
    """Return what a layer gives for ``(5, 37, inputs)``, with lengths where ``ragged``; and its gradients."""
    import torch

    layer = layer.to(dtype)
    torch.manual_seed(7)
    x = torch.randn(5, 37, inputs, dtype=dtype).requires_grad_(grad)
    lengths = torch.tensor([37, 1, 20, 0, 36]) if ragged else None
    if not grad:
        with torch.no_grad():
            return [layer(x, lengths)]
    return with_gradients(lambda: layer(x, lengths), [x, *layer.parameters()])


# ------------------------------------------------------------------ cells
def built_in_cells(inputs: int = 3, hidden: int = 5) -> dict[str, Callable[[], Any]]:
    """Return a maker for each built-in cell, and for options that change its equations."""
    from anaphora import nn

    names = (
        "Elman IRNN LSTM GRU SimpleGRU MGU IndRNN MinGRU MinLSTM SRU QRNN GILR HGRN LRU RGLRU S4D S5 SLSTM"
    )
    cells: dict[str, Callable[[], Any]] = {
        name: partial(getattr(nn, name), inputs, hidden) for name in names.split()
    }
    for name, options in {
        "LSTM peephole": {"peephole": True},
        "LSTM coupled": {"coupled": True},
        "LSTM without forget": {"forget": False},
        "LSTM layer norm": {"layer_norm": True},
    }.items():
        cells[name] = lambda options=options: nn.LSTM(inputs, hidden, **options)
    cells["GRU after"] = lambda: nn.GRU(inputs, hidden, reset="after")
    cells["Elman relu"] = lambda: nn.Elman(inputs, hidden, activation="relu")
    cells["Shortcut"] = lambda: nn.Shortcut(inputs, hidden, cell=nn.GRU, by=3)
    return cells


def drawn_cells() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield test cells: every part of `matrix_cells` once, and cells that are drawn from `ring_cells` and from it."""
    sys.path[:0] = [str(HERE / "tests" / "kernels")]
    import matrix_cells
    import ring_cells

    def ringed(own: bool, states: int, program: Any) -> Any:
        return ring_cells.draw_cell(own, states, program)

    def matrix(recipe: Any) -> Any:
        return matrix_cells.Drawn(matrix_cells.INPUTS, matrix_cells.HIDDEN, recipe=recipe)

    plain = ("head", "one", "add", "new")
    for place, words in enumerate(
        (matrix_cells.DECAYS, matrix_cells.WRITES, matrix_cells.RULES, matrix_cells.OUTPUTS)
    ):
        for word in (*words, *(matrix_cells.ELEMENTWISE if not place else ())):
            recipe = matrix_cells.Recipe(*plain[:place], word, *plain[place + 1 :])
            yield f"matrix {recipe}", lambda recipe=recipe: matrix(recipe)
    for seed in range(DRAWN):
        draw = random.Random(seed)
        if seed % 4 == 3:
            recipe = matrix_cells.Recipe(
                draw.choice((*matrix_cells.DECAYS, *matrix_cells.ELEMENTWISE)),
                draw.choice(matrix_cells.WRITES),
                draw.choice((*matrix_cells.RULES, *matrix_cells.BENT)),
                draw.choice(matrix_cells.OUTPUTS),
                draw.choice(((), ("last",), ("n",), ("last", "n"))),
            )
            yield f"drawn {seed} {recipe}", lambda recipe=recipe: matrix(recipe)
            continue
        mixed = ((), ring_cells.BENT, (*ring_cells.BENT, *ring_cells.MIXED))[seed % 4]
        words = (*ring_cells.AFFINE, *mixed)
        program = [
            (draw.choice(words), draw.randrange(21), draw.randrange(21)) for _ in range(draw.randrange(3, 8))
        ]
        own, states = draw.random() < 0.5, draw.randrange(1, 4)
        yield f"drawn {seed}", lambda own=own, states=states, program=program: ringed(own, states, program)


# ------------------------------------------------------------------ paths
def recurrences(dtype: Any) -> Iterator[Case]:
    """Yield recurrent layers on every backend of the CPU, whole sequences and steps."""
    import torch

    from anaphora import nn

    force = internal("force", "explain", "dispatch")

    def forced(backend: str, make: Callable[[], Any], ragged: bool, grad: bool) -> Any:
        torch.manual_seed(3)
        with force(backend):
            return layer_case(nn.Recurrent(make(), bidirectional=True), 3, dtype, ragged, grad)

    def stepped(make: Callable[[], Any], rows: int) -> Any:
        torch.manual_seed(3)
        layer = nn.Recurrent(make()).to(dtype).eval()
        steps, found = torch.randn(4, rows, 3, dtype=dtype), []
        state = layer.initial_state(rows, steps[0])
        with torch.no_grad():
            for x in steps:
                y, state = layer.step(x, state)
                found.append(y.clone())
        return [*found, state]

    loops = {
        name: built_in_cells()[name]
        for name in ("Elman", "LSTM", "LSTM peephole", "LSTM layer norm", "GRU", "GRU after", "MGU", "SLSTM")
    }
    scans = {
        name: built_in_cells()[name] for name in ("MinGRU", "SRU", "QRNN", "LRU", "RGLRU", "IndRNN", "S5")
    }
    for backend, cells in (("c", loops), ("torch", loops), ("reference", loops), ("scan", scans)):
        for (name, make), ragged in itertools.product(cells.items(), (False, True)):
            if backend in ("torch", "reference") and name not in ("LSTM", "GRU"):
                continue
            word = "ragged" if ragged else "full"
            yield (
                f"recurrent {backend} {name} {word}",
                lambda b=backend, m=make, r=ragged: forced(b, m, r, True),
            )
        yield (
            f"recurrent {backend} without gradients",
            lambda b=backend, m=cells["LSTM" if "LSTM" in cells else "SRU"]: forced(b, m, False, False),
        )
    for rows in (1, 3):
        yield f"recurrent steps LSTM {rows}", lambda rows=rows: stepped(loops["LSTM"], rows)
        yield f"recurrent steps GRU {rows}", lambda rows=rows: stepped(loops["GRU"], rows)


def linear_layers(dtype: Any) -> Iterator[Case]:
    """Yield the layers with a linear recurrence, whole and step by step."""
    import torch

    from anaphora.nn import linear

    makers: dict[str, Callable[[], Any]] = {
        name: partial(getattr(linear, name), 8, heads=2)
        for name in ("GLA", "RetNet", "DeltaNet", "GatedDeltaNet", "MLSTM", "RWKV7")
    }
    makers |= {name: partial(getattr(linear, name), 8) for name in ("Mamba", "Griffin", "RWKV4")}
    makers["Mamba2"] = lambda: linear.Mamba2(8, heads=2)
    makers["LocalAttention"] = lambda: linear.LocalAttention(8, heads=2, window=5)

    def run(make: Callable[[], Any], ragged: bool, grad: bool) -> Any:
        torch.manual_seed(3)
        return layer_case(make(), 8, dtype, ragged, grad)

    for (name, make), ragged in itertools.product(makers.items(), (False, True)):
        yield f"linear {name} {'ragged' if ragged else 'full'}", lambda m=make, r=ragged: run(m, r, True)
        if not ragged:
            yield f"linear {name} without gradients", lambda m=make: run(m, False, False)


def losses(dtype: Any) -> Iterator[Case]:
    """Yield CTC, transducer and CRF: losses, searches and all gradients."""
    import torch

    from anaphora import nn, search

    def drawn(*shape: int) -> Any:
        torch.manual_seed(5)
        return torch.randn(*shape, dtype=dtype).requires_grad_()

    targets, sizes = [[1, 2, 2], [3], [], [4, 1, 4, 5]], torch.tensor([12, 5, 3, 12])

    def ctc(ragged: bool, normalized: bool, twice: bool = False) -> Any:
        logits = drawn(4, 12, 7)
        given = logits.log_softmax(-1) if normalized else logits
        loss = search.ctc_loss(
            given, targets, sizes if ragged else None, reduction="none", normalized=normalized
        )
        if twice:
            (first,) = torch.autograd.grad(loss.sum(), logits, create_graph=True)
            return [loss, first, *torch.autograd.grad(first.square().sum(), logits)]
        return with_gradients(lambda: loss, [logits])

    def transducer(ragged: bool, twice: bool = False) -> Any:
        logits = drawn(4, 12, 5, 7)
        loss = search.transducer_loss(logits, targets, sizes if ragged else None, reduction="none")
        if twice:
            (first,) = torch.autograd.grad(loss.sum(), logits, create_graph=True)
            return [loss, first, *torch.autograd.grad(first.square().sum(), logits)]
        return with_gradients(lambda: loss, [logits])

    def crf(what: str, ragged: bool) -> Any:
        torch.manual_seed(5)
        chain = nn.CRF(6).to(dtype)
        emissions, lengths = drawn(4, 12, 6), sizes if ragged else None
        if what == "loss":
            tags = torch.arange(48).view(4, 12) % 6
            return with_gradients(lambda: chain(emissions, tags, lengths), [emissions, *chain.parameters()])
        if what == "twice":
            (first,) = torch.autograd.grad(
                chain.log_partition(emissions, lengths).sum(), emissions, create_graph=True
            )
            return [first, *torch.autograd.grad(first.square().sum(), [emissions, *chain.parameters()])]
        if what == "k_best":
            return chain.k_best(emissions, 3, lengths)
        return getattr(chain, what)(emissions, lengths)

    for ragged in (False, True):
        word = "ragged" if ragged else "full"
        yield f"ctc loss {word}", lambda r=ragged: ctc(r, False)
        yield f"ctc loss of log p {word}", lambda r=ragged: ctc(r, True)
        yield f"ctc loss {word} twice", lambda r=ragged: ctc(r, False, True)
        yield f"transducer loss {word}", lambda r=ragged: transducer(r)
        yield f"transducer loss {word} twice", lambda r=ragged: transducer(r, True)
        for what in ("loss", "log_partition", "marginals", "viterbi", "k_best", "twice"):
            yield f"crf {what} {word}", lambda w=what, r=ragged: crf(w, r)
        yield (
            f"ctc beam {word}",
            lambda r=ragged: search.ctc_beam(
                drawn(4, 12, 7).detach().log_softmax(-1), sizes if r else None, width=4
            ),
        )

    def grid(grad: bool, directions: int) -> Any:
        torch.manual_seed(3)
        layer, x = nn.GridLSTM(4, 5, directions=directions).to(dtype), drawn(3, 6, 5, 4)
        with torch.set_grad_enabled(grad):
            return with_gradients(lambda: layer(x), [x, *layer.parameters()]) if grad else layer(x)

    for directions, grad in ((4, True), (1, True), (4, False)):
        yield (
            f"grid lstm {directions} {'gradients' if grad else 'alone'}",
            lambda g=grad, d=directions: grid(g, d),
        )


def transformers(dtype: Any) -> Iterator[Case]:
    """Yield Transformer stacks: layer by layer with gradients, and whole; and products with packed weights."""
    import torch

    from anaphora import nn
    from anaphora.nn.attention import MultiHead

    def stack(ragged: bool, causal: bool, grad: bool, norm_first: bool) -> Any:
        torch.manual_seed(3)
        layer = nn.EncoderLayer(MultiHead(32, 4), nn.FeedForward(32, 40), norm_first=norm_first)
        model, x = nn.TransformerEncoder(layer, 2).to(dtype).eval(), torch.randn(4, 19, 32, dtype=dtype)
        mask = torch.arange(19) < torch.tensor([19, 1, 8, 17])[:, None] if ragged else None
        if grad:
            return with_gradients(lambda: model(x, mask, causal=causal), model.parameters())
        with torch.no_grad():
            return model(x, mask, causal=causal)

    for ragged, causal, grad, first in itertools.product((False, True), repeat=4):
        words = " ".join(
            w
            for w, on in (("ragged", ragged), ("causal", causal), ("gradients", grad), ("norm first", first))
            if on
        )
        yield f"encoder {words}", lambda r=ragged, c=causal, g=grad, f=first: stack(r, c, g, f)

    def packed(int8: bool, rows: int) -> Any:
        torch.manual_seed(3)
        pack, linear = internal("pack", "best_symbols"), internal("linear", "best_symbols")
        return linear(torch.randn(rows, 70), pack(torch.randn(50, 70), torch.randn(50), int8=int8))

    def step(name: str, **more: Any) -> Any:
        torch.manual_seed(3)
        call = internal(name, "best_symbols")
        if name == "attend_memory":
            seen = torch.arange(9) < torch.tensor([9, 4])[:, None]
            return call(torch.randn(3, 16), 2, torch.randn(2, 9, 32), torch.tensor([0, 1, 1]), seen)
        if name == "attend_pages":
            table = torch.tensor([[7, 0, 1], [3, 2, 0]])
            return call(torch.randn(2, 16), torch.randn(3, 4, 32), table, heads=2)
        return call(torch.randn(3, 50), **more)

    if dtype == torch.float32:
        for int8, rows in itertools.product((False, True), (1, 13)):
            yield f"packed linear {'int8' if int8 else 'float'} {rows}", lambda i=int8, r=rows: packed(i, r)
        yield "packed attention to a memory", lambda: step("attend_memory")
        yield "packed attention to pages", lambda: step("attend_pages")
        yield "packed best symbols", lambda: step("best_symbols", count=4, forbidden=2)
        yield "packed log p", lambda: step("log_probs")

    def translated(int8: bool) -> Any:
        sys.path[:0] = [str(HERE / "tests" / "models"), str(HERE / "tests")]
        import test_seq2seq

        from anaphora.search import beam

        torch.manual_seed(3)
        model = test_seq2seq.transformers().eval()
        source, lengths, _ = test_seq2seq.batch()
        packed = internal("packed", "_pack_language")(model, int8=int8)
        with torch.no_grad():
            state = packed.start(packed.encode(source, lengths))
            start = torch.full((len(source),), test_seq2seq.BOS)
            return beam(packed.step, state, start=start, eos=2, width=4, max_length=9, n_best=3)

    if dtype == torch.float32:
        for int8 in (False, True):
            yield f"packed translator {'int8' if int8 else 'float'}", lambda i=int8: translated(i)


def fitted(dtype: Any) -> Iterator[Case]:
    """Yield sound, and models that are fitted by loops of their own."""
    import numpy as np
    import torch

    import anaphora as an

    if dtype != torch.float32:
        return

    def sound() -> Any:
        torch.manual_seed(3)
        return internal("LogMel")()(torch.randn(2, 4000), torch.tensor([4000, 2500]))

    def hmm(what: str) -> Any:
        draw = np.random.default_rng(0)
        x = [draw.normal(size=(n, 2)) for n in (30, 12)]
        model = an.HMM(3, seed=1).fit(x, iterations=4)
        return getattr(model, what)(x) if what != "parameters" else model.parameters

    def kalman() -> Any:
        y = np.random.default_rng(0).normal(size=(30, 1)).cumsum(0)
        y[7:9] = np.nan
        model = an.Kalman(
            A=[[1, 1], [0, 1]], C=[[1, 0]], Q=np.diag([0.0, 0.01]), R=[[4.0]], covariance=np.eye(2)
        )
        filtered, smoothed = model.filter(y), model.smooth(y)
        return [
            filtered.mean,
            filtered.covariance,
            smoothed.mean,
            smoothed.covariance,
            model.log_likelihood(y),
        ]

    texts = [
        " ".join(random.Random(seed).choices(["a", "b", "c", "d", "e", "f", "g"], k=9)) for seed in range(40)
    ]

    def vectors(**options: Any) -> Any:
        return an.Word2Vec(12, epochs=2, min_count=1, seed=1, workers=1, **options).fit(texts).vectors.matrix

    yield "sound log mel", sound
    for what in ("parameters", "predict", "score"):
        yield f"hmm {what}", lambda what=what: hmm(what)
    yield "kalman filter and smoother", kalman
    yield "ngram", lambda: [an.NGram(order=3).fit(texts).log_prob(text) for text in texts[:9]]
    yield "word2vec", vectors
    yield "word2vec hierarchical", lambda: vectors(loss="hierarchical")
    yield "word2vec cbow", lambda: vectors(method="cbow")


def paths() -> Iterator[Case]:
    """Yield all fast paths by name."""
    import torch

    for dtype in (torch.float32, torch.float64):
        word = str(dtype).removeprefix("torch.")
        for family in (recurrences, linear_layers, losses, transformers, fitted):
            for name, work in family(dtype):
                yield f"{word} {name}", work


# ------------------------------------------------------------------ texts
class _Library:
    """Stands for a compiled library: every function does nothing and gives 0."""

    def __getattr__(self, name: str) -> Any:
        def function(*given: Any) -> int:
            return 0

        setattr(self, name, function)
        return function


def texts() -> Iterator[tuple[str, str]]:
    """Yield the text of every kernel: C, CUDA and Triton of the cells, and each `Kernel`."""
    yield from _kernel_texts()
    yield from _package_texts()
    cells = [(f"built-in {name}", make) for name, make in built_in_cells().items()]
    yield from _cell_texts([*cells, *drawn_cells()])


def _expanded(text: str) -> str:
    """Return a source after its macros and conditions, without lines that are blank."""
    done = subprocess.run(
        [str(shutil.which("gcc")), "-E", "-P", "-x", "c", "-"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def _kernel_texts() -> Iterator[tuple[str, str]]:
    kind = internal("Kernel", "serves")
    made: list[tuple[str, str]] = []
    original = kind.__init__

    def recording(self: Any, source: str, name: str, **more: Any) -> None:
        original(self, source, name, **more)
        made.append((f"{name} {sorted(more.items())}", source))

    kind.__init__ = recording
    import anaphora

    for module in pkgutil.walk_packages(anaphora.__path__, "anaphora."):
        if re.search(r"\.(kernels|engine|ops|native|search)\b", module.name):
            try:
                importlib.import_module(module.name)
            except ImportError:
                continue  # Triton is not installed
    flags, widths = (False, True), (256, 1024)
    factories: list[tuple[str, str, str, Iterable[tuple[Any, ...]]]] = [
        ("kernel", "", "added_norm", itertools.product(widths, flags, flags, flags)),
        ("kernel", "", "normed", itertools.product(widths, flags, flags)),
        ("kernel", "", "logit_step", ((width,) for width in widths)),
        ("value_kernel", "slope_kernel", "", ((word,) for word in ("gelu", "gelu-tanh", "relu", "silu"))),
        ("slope_kernel", "value_kernel", "", ((word,) for word in ("gelu", "gelu-tanh", "relu", "silu"))),
        ("value_kernel", "run_kernel", "", ((flag,) for flag in flags)),
        ("run_kernel", "value_kernel", "", ((width,) for width in widths)),
    ]
    for name, beside, near, calls in factories:
        for call in calls:
            internal(name, beside, near)(*call)
            made[-1] = (f"{made[-1][0]} {call}", made[-1][1])
    kind.__init__ = original
    prelude = internal("PRELUDE", "serves")
    counts: dict[str, int] = {}
    for name, source in made:
        counts[name] = counts.get(name, 0) + 1
        yield f"kernel {name} {counts[name]}", source
        for number in range(4):
            yield (
                f"kernel {name} {counts[name]} expanded {number}",
                _expanded(f"#define KIND {number}\n{prelude}{source}"),
            )


def _package_texts() -> Iterator[tuple[str, str]]:
    """Yield each C library of a package, as it is given to the compiler, and CUDA that is made of files."""
    kind, seen = internal("CLibrary"), dict[tuple[str, str], None]()
    for module, text in _sources().items():
        if "CLibrary(" in text:
            library = getattr(importlib.import_module(module.removesuffix(".__init__")), "library", None)
            if isinstance(library, kind):
                seen |= {(library.name, library.source(t.itemsize == 8)): None for t in library.dtypes}
    counts: dict[str, int] = {}
    for name, source in seen:
        counts[name] = counts.get(name, 0) + 1
        yield f"c library {name} {counts[name]}", source
    import anaphora

    for path in sorted(Path(str(anaphora.__file__)).parent.rglob("*")):
        if path.suffix in (".c", ".cu", ".h"):
            yield f"file {path.name} of {len(path.read_text().splitlines())} lines", path.read_text()
    for number in range(3):
        yield f"cuda selective {number}", internal("source", "STATES", "selective")(number)


def _cell_texts(cells: Iterable[tuple[str, Callable[[], Any]]]) -> Iterator[tuple[str, str]]:
    import torch

    compiler = importlib.import_module(internal("CLibrary").__module__)
    seen: dict[str, None] = {}

    def recorded(source: str, name: str) -> _Library:
        seen[f"{name}\n{source}"] = None
        library = _Library()
        library.packed_size = lambda out, inner: out.value * inner.value  # type: ignore[attr-defined]
        return library

    original, compiler.load = compiler.load, recorded
    try:
        for name, make in cells:
            for dtype, time, reverse in itertools.product(
                (torch.float32, torch.float64), (1, 7), (False, True)
            ):
                torch.manual_seed(3)
                seen.clear()
                word = f"{name} {str(dtype).removeprefix('torch.')} T={time} {'reverse' if reverse else 'forward'}"
                made = _texts_of(make().to(dtype), dtype, time, reverse)
                yield f"text c {word}", "\n".join(seen)
                for part, text in made.items():
                    yield f"text {part} {word}", text
    finally:
        compiler.load = original


def _texts_of(cell: Any, dtype: Any, time: int, reverse: bool) -> dict[str, str]:
    """Return the CUDA and Triton texts of a cell; C is recorded where it is compiled."""
    import torch

    step = internal("LayerStep")(cell)
    x = torch.randn(2, time, cell.inputs, dtype=dtype).requires_grad_()
    shapes = getattr(cell, "shapes", {})
    states = tuple(torch.randn(2, _width(cell, name, shapes), dtype=dtype) for name in cell.state)
    run = internal("LayerRun", "Case")(step, dict(cell.named_parameters()), (x,), (), states, None, reverse)
    ready = internal("Engine", "Prepared")(step, type(cell).__name__).prepared(run)
    if ready.plan is None:
        return {"plan": f"refused: {ready.reason}"}
    plan, found = ready.plan, {}
    attempts: dict[str, Callable[[], str]] = {
        "triton": lambda: "\n".join(p.text for p in internal("programs", "GENERATED_PASSES")(plan)),
        "scan": lambda: _scan_texts(plan, dtype),
        "persistent": lambda: _persistent_texts(plan),
    }
    for name, work in attempts.items():
        try:
            found[name] = work()
        except LookupError:
            raise  # the name of an internal that has moved
        except Exception as error:  # a backend says in its own words that it cannot
            found[name] = f"refused: {error}"
    return found


def _width(cell: Any, name: str, shapes: dict[str, Any]) -> int:
    size = 1
    for count in shapes.get(name, (cell.hidden,)):
        size *= count
    return size


def _scan_texts(plan: Any, dtype: Any) -> str:
    import torch

    internal("CompiledUnits")(plan, dtype == torch.float64)
    found = []
    for unit in internal("cut_units")(plan):
        program = internal("generate", "steps_of")(unit)
        for name in program.texts:
            for number, wide in itertools.product(range(3), (False, True)):
                found.append(program.source(name, number, 64, 2, wide))
    return "\n".join(found)


def _persistent_texts(plan: Any) -> str:
    programs = internal("make_programs", "Programs")(plan)
    choose, kernel = internal("choose", "SHARED_MEMORY"), internal("Kernel", "NAME")
    found = []
    for kind, sides in itertools.product(("tf32", "bf16", "fp16"), (1, 2)):
        before = None
        for program in (programs.forward, programs.backward):
            tiling = choose(program, programs.hidden, 16, kind != "tf32", 132 // sides)
            before = kernel(program, tiling, kind, before, sides)
            found.append(before.source)
    return "\n".join(found)


# ------------------------------------------------------------------ command
def one_set(isa: str, text: bool, only: str) -> None:
    """Print the lines of one instruction set, or those of the texts."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    if text:
        for name, source in texts():
            if only in name:
                said = (
                    source[:160]
                    if source.startswith("refused")
                    else hashlib.sha256(source.encode()).hexdigest()
                )
                print(f"{name}: {said}".replace("\n", " "), flush=True)
        return
    for name, work in paths():
        if only not in name:
            continue
        torch.manual_seed(0)
        try:
            said = digest(work())
        except Exception as error:  # a path that raises is a line, too
            said = f"{type(error).__name__}: {error}"[:160].replace("\n", " ")
        print(f"{isa} {name}: {said}", flush=True)


def compare(before: Path, after: Path) -> int:
    """Print the lines that differ between two files; return how many do."""
    old, new = (
        dict(line.split(": ", 1) for line in path.read_text().splitlines() if ": " in line)
        for path in (before, after)
    )
    gone, come = old.keys() - new.keys(), new.keys() - old.keys()
    changed = [name for name in old if name in new and old[name] != new[name]]
    for word, names in (("changed", changed), ("gone", sorted(gone)), ("new", sorted(come))):
        for name in names:
            print(f"{word}: {name}")
    print(
        f"{len(old.keys() & new.keys()) - len(changed)} the same, {len(changed)} changed, {len(gone)} gone, {len(come)} new"
    )
    return len(changed) + len(gone)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--isa", help="instruction sets, by commas; default: all that this CPU executes")
    parser.add_argument("--text", action="store_true", help="digests of the generated texts alone")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("BEFORE", "AFTER"))
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.compare:
        sys.exit(1 if compare(*given.compare) else 0)
    if given.here:
        one_set(given.isa, given.text, given.only)
        return
    words = (
        given.isa.split(",")
        if given.isa
        else [w for w in internal("executable", "march_flags")() if w in TIED]
    )
    rows = (
        [("avx2" if "avx2" in words else words[0], True)] if given.text else [(word, False) for word in words]
    )
    for word, text in rows:
        aten, onednn = TIED[word]
        tied = {
            "ANAPHORA_ISA": word,
            "ATEN_CPU_CAPABILITY": aten,
            "ONEDNN_MAX_CPU_ISA": onednn,
            "PYTHONHASHSEED": "0",
        }
        command = [
            sys.executable,
            __file__,
            "--here",
            "--isa",
            word,
            "--only",
            given.only,
            *(["--text"] if text else []),
        ]
        subprocess.run(command, env={**os.environ, **tied}, check=True)


if __name__ == "__main__":
    main()
