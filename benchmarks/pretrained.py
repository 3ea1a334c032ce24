"""Models of others against where they come from: encoders and decoders against transformers, silero-vad
against its own programs. Run: python benchmarks/pretrained.py [--json] [--times N] [--only WORD] [--device cuda]

Both sides have the same weights, drawn at random in the sizes of MiniLM (BERT, 6 × 384) and GPT-2 small, and run in one process,
one thread, in turn; the least of N times counts. First they must agree. On a GPU decoding is in bfloat16, and a line on
standard error says which share of the measured memory bandwidth it reaches; another names the machine. Peers that are not installed are named.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import anaphora as an
from anaphora.tasks.language.inference import draw
from rows import against, row, show

BERT = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
SHAPES = ((1, 16), (1, 128), (32, 16), (32, 128))
TOKENS, PROMPT = 128, 8
LLAMA = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4,
    "intermediate_size": 2048, "vocab_size": 32000, "max_position_embeddings": 1024,
}  # fmt: skip
Run = Callable[[], object]


def machine(device: str) -> str:
    """What the figures were measured on, and how busy it is."""
    if device == "cuda":
        name = torch.cuda.get_device_name()
    else:
        facts = Path("/proc/cpuinfo")
        lines = facts.read_text().splitlines() if facts.exists() else []
        named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        name = f"{named[0] if named else platform.processor()}, {os.cpu_count()} cores"
    busy = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"on {name}{busy}; torch {torch.__version__}, one thread"


def least(runs: dict[str, Run], times: int, device: str) -> dict[str, float]:
    """Seconds of the fastest run of each, run in turn, after one that does not count."""
    best = dict.fromkeys(runs, float("inf"))
    for turn in range(times + 1):
        for name, run in runs.items():
            begin = time.perf_counter()
            run()
            if device == "cuda":
                torch.cuda.synchronize()
            if turn:
                best[name] = min(best[name], time.perf_counter() - begin)
    return best


def rows_of(
    name: str, best: dict[str, float], unit: str, scale: float, goal: float | None
) -> list[dict[str, Any]]:
    """A row for each peer; ``scale``: from seconds to the unit."""
    ours = best.pop("ours")
    return [row(name, peer, scale * ours, scale * each, unit, goal=goal) for peer, each in best.items()]


# ---------------------------------------------------------------- encoders


def word_pieces(folder: Path, symbols: int) -> None:
    """A tokenizer like BERT's."""
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    (folder / "vocab.txt").write_text(
        "\n".join([*special, *(f"w{n}" for n in range(symbols - len(special)))])
    )


def encoders(times: int, device: str, compiled: bool) -> list[dict[str, Any]]:
    import transformers

    config = transformers.BertConfig(**BERT, attn_implementation="sdpa")
    torch.manual_seed(0)
    theirs = transformers.BertModel(config, add_pooling_layer=False).eval()
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        theirs.save_pretrained(folder)
        word_pieces(folder, config.vocab_size)
        m = an.load(folder, an.Embedder, device=device)
        theirs.to(device)
        encoder = m.model_.eval().encoder
        order = torch.tensor(m.inputs_.tokenizer.numbering.order[4:], device=device)
        faster = torch.compile(theirs) if compiled else None
        for batch, length in SHAPES:
            symbols = torch.randint(4, 30000, (batch, length), device=device)
            ids, lengths = order[symbols - 4], torch.full((batch,), length, device=device)
            with torch.no_grad():
                ours, other = encoder(symbols, lengths).annotations, theirs(ids).last_hidden_state
                assert float((ours - other).abs().max()) < 1e-4, "the encoders differ"
                runs: dict[str, Run] = {
                    "ours": lambda s=symbols, n=lengths: encoder(s, n),
                    "transformers": lambda i=ids: theirs(i),
                }
                if faster is not None:
                    runs["transformers, compiled"] = lambda i=ids: faster(i)
                best = least(runs, max(3, times * 256 // (batch * length)), device)
            where = "" if device == "cpu" else ", GPU"
            label = f"BERT 6 × 384, {batch} × {length}{where}"
            found += rows_of(label, best, "ms", 1e3, 1.2 if device == "cpu" else None)
    return found


# ---------------------------------------------------------------- decoders


def byte_pairs(folder: Path) -> int:
    """A tokenizer like GPT-2's, without its merges; returns the number of its symbols."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    end = "<|endoftext|>"
    known = {one: i for i, one in enumerate([*sorted(pre_tokenizers.ByteLevel.alphabet()), end])}
    engine = Tokenizer(models.BPE(known, []))
    engine.pre_tokenizer, engine.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    engine.add_special_tokens([end])
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=engine, bos_token=end, eos_token=end)
    made.save_pretrained(folder)
    return len(known)


def decoder_pair(folder: Path, kind: str, device: str) -> tuple[Any, Any]:
    """A model of theirs, and ours of the same weights."""
    import transformers

    end = byte_pairs(folder) - 1
    ends = {"bos_token_id": end, "eos_token_id": end, "pad_token_id": None}
    torch.manual_seed(0)
    if kind == "GPT-2 small":
        theirs: Any = transformers.GPT2LMHeadModel(transformers.GPT2Config(**ends))
    else:
        theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, **ends))
    theirs.eval().save_pretrained(folder)
    theirs.generation_config.eos_token_id = None
    return theirs.to(device), an.load(folder, an.LanguageModel, device=device)


def decoders_on_cpu(times: int, kind: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as name:
        theirs, m = decoder_pair(Path(name), kind, "cpu")
        prompt = list(range(10, 10 + PROMPT))
        order = m.tokenizer_.numbering.order
        ids = torch.tensor([[order[symbol] for symbol in prompt]])

        def ours() -> list[int]:
            drawn = draw(
                m.model_.eval(), m.tokenizer_, prompt, lines=False, device=torch.device("cpu"), length=TOKENS, seed=0,
                temperature=0.0,
            )  # fmt: skip
            return drawn[0].tokens

        def generate(**more: Any) -> Any:
            given = {"attention_mask": torch.ones_like(ids), "max_new_tokens": TOKENS, "do_sample": False}
            with torch.no_grad():
                return theirs.generate(ids, **given, pad_token_id=0, **more)

        static = {"cache_implementation": "static", "disable_compile": True}
        mine, other = [order[symbol] for symbol in ours()], generate()[0, PROMPT:].tolist()
        print(
            f"{kind}: {_equal(mine, other)} of {TOKENS} symbols are the same from the first on",
            file=sys.stderr,
        )
        runs: dict[str, Run] = {
            "ours": ours,
            "transformers, growing cache": generate,
            "transformers, static cache": lambda: generate(**static),
        }
        best = least(runs, times, "cpu")
    return rows_of(f"{kind}, {TOKENS} symbols, batch 1", best, "ms/symbol", 1e3 / TOKENS, 1.5)


def _equal(a: list[int | None], b: list[int]) -> int:
    """How many first ones are equal."""
    return next((i for i, pair in enumerate(zip(a, b, strict=True)) if pair[0] != pair[1]), len(a))


def bandwidth() -> float:
    """Bytes in a second that a copy on this GPU reads and writes."""
    a = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    b, best = torch.empty_like(a), 0.0
    for _ in range(10):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        events[0].record()
        b.copy_(a)
        events[1].record()
        events[1].synchronize()
        best = max(best, 2e3 * a.numel() / events[0].elapsed_time(events[1]))
    return best


def decoders_on_gpu(times: int, kind: str) -> list[dict[str, Any]]:
    from anaphora.models.whole import parts_of
    from anaphora.ops.decode.cuda import Writer

    with tempfile.TemporaryDirectory() as name:
        theirs, m = decoder_pair(Path(name), kind, "cuda")
        parts = parts_of(m.model_.eval())
        assert parts is not None
        writer, prompt = Writer(parts, torch.bfloat16, capacity=256), list(range(10, 10 + PROMPT))
        order = m.tokenizer_.numbering.order
        ids = torch.tensor([[order[symbol] for symbol in prompt]], device="cuda")
        theirs = theirs.bfloat16()

        def generate(**more: Any) -> Any:
            given = {"attention_mask": torch.ones_like(ids), "max_new_tokens": TOKENS, "do_sample": False}
            with torch.no_grad():
                return theirs.generate(ids, **given, pad_token_id=0, **more)

        runs: dict[str, Run] = {
            "ours": lambda: writer.write(prompt, TOKENS, least=4),
            "transformers, growing cache": generate,
            "transformers, static cache, compiled": lambda: generate(cache_implementation="static"),
        }
        best = least(runs, times, "cuda")
    kept = 4 * len(parts.layers) * parts.width // parts.heads * parts.kept_heads * (PROMPT + TOKENS // 2)
    limit = (parts.moved(2) + kept) / bandwidth()
    share = 100 * limit * TOKENS / best["ours"]
    print(
        f"{kind}: {share:.0f} % of the memory bandwidth (the limit is {1e6 * limit:.1f} µs/symbol)",
        file=sys.stderr,
    )
    return rows_of(f"{kind}, {TOKENS} symbols, batch 1, bf16, GPU", best, "ms/symbol", 1e3 / TOKENS, 3.0)


# ---------------------------------------------------------------- voice activity


def folder_of(name: str) -> Path:
    """Where a package lies, without importing it."""
    found = importlib.util.find_spec(name)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(name)
    return Path(found.origin).parent


def silero(times: int) -> list[dict[str, Any]]:
    folder = folder_of("silero_vad") / "data"
    m = an.load(folder / "silero_vad.onnx", device="cpu")
    script = torch.jit.load(folder / "silero_vad.jit").eval()
    chunks = list((torch.randn(1, 50 * 512) * 0.1).split(512, 1))

    def ours() -> float:
        state: Any = None
        for chunk in chunks:
            y, state = m(chunk, state)
        return float(y)

    def theirs() -> float:
        script.reset_states()
        for chunk in chunks:
            y = script(chunk, 16000)
        return float(y)

    runs: dict[str, Run] = {"ours": ours, "its TorchScript": theirs}
    if importlib.util.find_spec("onnxruntime") is not None:
        runs["its ONNX, onnxruntime"] = _silero_onnx(folder / "silero_vad.onnx", chunks)
    with torch.no_grad():
        assert abs(ours() - theirs()) < 1e-4, "silero-vad differs"
        best = least(runs, 5 * times, "cpu")
    return rows_of("silero-vad, a chunk of 32 ms", best, "µs", 1e6 / len(chunks), 1.2)


def _silero_onnx(path: Path, chunks: list[torch.Tensor]) -> Run:
    onnxruntime = importlib.import_module("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    arrays, rate = [chunk.numpy() for chunk in chunks], np.array(16000)

    def run() -> float:
        context, state = np.zeros((1, 64), np.float32), np.zeros((2, 1, 128), np.float32)
        for chunk in arrays:
            given = {"input": np.concatenate((context, chunk), 1), "state": state, "sr": rate}
            y, state = session.run(None, given)
            context = chunk[:, -64:]
        return float(y[0, 0])

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=8)
    parser.add_argument("--only", default="", help="measures whose name has this in it")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--no-compile", action="store_true", help="without torch.compile, which takes a minute"
    )
    given = parser.parse_args()
    torch.set_num_threads(1)
    decode = decoders_on_gpu if given.device == "cuda" else decoders_on_cpu
    measures: dict[str, tuple[str, Callable[[], list[dict[str, Any]]]]] = {
        "encoders": ("transformers", lambda: encoders(given.times, given.device, not given.no_compile)),
        "GPT-2": ("transformers", lambda: decode(given.times, "GPT-2 small")),
        "Llama": ("transformers", lambda: decode(given.times, "Llama 12 × 768")),
    }
    if given.device == "cpu":
        measures["silero"] = ("silero-vad", lambda: silero(given.times))
    print(machine(given.device), file=sys.stderr)
    rows = []
    for name, (peer, measure) in measures.items():
        if given.only.lower() in name.lower():
            rows += against(peer, measure)
    show(rows, as_json=given.json)


if __name__ == "__main__":
    main()
