"""E6, E7, E9, E10, B7: hostile files for every reader that is fuzzed, at least five each, made here, no idea more than ten times.

Each is read within five seconds of the processor and a gibibyte of memory, or refused in one sentence.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import resource
import signal
import struct
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzz_targets import targets

from anaphora.errors import AnaphoraError
from anaphora.training.checkpoint import Unusable
from hostile_json import places

SECONDS, ROOM = 5.0, 1 << 30
EACH, MOST = 5, 10
Idea = Callable[[bytes], bytes]


# ---------------------------------------------------------------------- texts
def without_first_digits(data: bytes, digits: bytes) -> bytes:
    return re.sub(rb"[0-9]+", digits, data, count=1)


TEXTS: dict[str, Idea] = {
    "a line of four megabytes": lambda data: data + b"x" * (4 << 20),
    "a row of 200,000 fields": lambda data: data + b"\t".join([b"a"] * 200_000) + b"\n",
    "a million empty lines": lambda data: b"\n" * 1_000_000 + data,
    "line ends of old machines": lambda data: data.replace(b"\n", b"\r") * 100,
    "a megabyte of zeros": lambda data: b"\0" * (1 << 20) + data,
    "other code": lambda data: data.decode(errors="replace").encode("utf-16"),
    "half characters": lambda data: data + "\ud800\udfff".encode("utf-8", "surrogatepass") * 1000,
    "a mark of order before every line": lambda data: b"\n".join(
        b"\xef\xbb\xbf" + one for one in data.split(b"\n")
    ),
    "a million quotes": lambda data: b'"' * 1_000_001 + data,
    "a number of 200,000 digits": lambda data: without_first_digits(data, b"9" * 200_000),
    "an exponent without end": lambda data: without_first_digits(data, b"1e999999999"),
    "brackets without end": lambda data: b"[" * 300_000 + data,
    "objects without end": lambda data: b'{"a":' * 200_000 + data,
    "orders to the terminal": lambda data: b"\x1b]0;x\x07\x1b[2J" * 1000 + data,
    "numbers of other writings": lambda data: re.sub(rb"[0-9]", "٣".encode(), data),
    "lines in reverse order": lambda data: b"\n".join(reversed(data.split(b"\n"))),
    "every blank a strange one": lambda data: data.replace(b" ", b" ").replace(b"\t", "\u2028".encode()),
    "not a number": lambda data: re.sub(rb"[0-9.]+", b"NaN", data),
    "below zero": lambda data: re.sub(rb"\b[0-9]", b"-9", data),
    "formulas": lambda data: b"=cmd|' /C calc'!A0\n" * 5000 + data,
}


# ---------------------------------------------------------------------- JSON, by its values
def everywhere(change: Callable[[Any], Any], kind: type | tuple[type, ...]) -> Idea:
    """Change every value of a kind."""

    def walked(value: Any) -> Any:
        made = change(value) if isinstance(value, kind) and not isinstance(value, bool) else value
        if isinstance(made, dict):
            return {key: walked(one) for key, one in made.items()}
        return [walked(one) for one in made] if isinstance(made, list) else made

    def made(data: bytes) -> bytes:
        first, *rest = data.split(b"\n{")
        document = json.loads(first)
        return json.dumps(walked(document)).encode() + b"".join(b"\n{" + one for one in rest)

    return made


def at_places(value: Any) -> Idea:
    """Put a value at the fifth place that is a number, else at the first place."""

    def made(data: bytes) -> bytes:
        first, *rest = data.split(b"\n{")
        document = json.loads(first)
        found = list(places(document))
        path = found[len(found) // 2] if found else ()
        inside = document
        for key in path[:-1]:
            inside = inside[key]
        if path:
            inside[path[-1]] = value
        return json.dumps(document).encode() + b"".join(b"\n{" + one for one in rest)

    return made


VALUES: dict[str, Idea] = {
    "all numbers 2**31": everywhere(lambda _: 1 << 31, (int, float)),
    "all numbers 2**62": everywhere(lambda _: 1 << 62, (int, float)),
    "all numbers below zero": everywhere(lambda value: -value - 1, (int, float)),
    "all numbers broken": everywhere(lambda value: value + 0.5, int),
    "all numbers 1e308": everywhere(lambda _: 1e308, (int, float)),
    "all numbers truths": everywhere(lambda _: True, (int, float)),
    "all texts empty": everywhere(lambda _: "", str),
    "all texts long": everywhere(lambda value: value * 20_000, str),
    "all texts paths": everywhere(lambda _: "../../../../etc/passwd", str),
    "all texts numbers": everywhere(lambda _: 7, str),
    "all texts with zeros": everywhere(lambda value: f"\0{value}\0", str),
    "all lists twice": everywhere(lambda value: value + value, list),
    "all lists empty": everywhere(lambda _: [], list),
    "a list of 100,000": at_places([0] * 100_000),
    "an object of 100,000": at_places({str(i): i for i in range(100_000)}),
    "a text of a megabyte": at_places("x" * (1 << 20)),
    "nothing": at_places(None),
    "nested to the limit": at_places(json.loads("[" * 90 + "]" * 90)),
}


# ---------------------------------------------------------------------- bytes
def each_word(change: Callable[[int], int], form: str) -> Idea:
    """Change every whole number of a form that is small, as lengths are."""

    def made(data: bytes) -> bytes:
        size, found = struct.calcsize(form), bytearray(data)
        for at in range(0, len(found) - size + 1, size):
            (value,) = struct.unpack_from(form, found, at)
            if 0 < value < 4096:
                struct.pack_into(form, found, at, change(value) % (1 << (8 * size)))
        return bytes(found)

    return made


BYTES: dict[str, Idea] = {
    "cut in the middle": lambda data: data[: len(data) // 2],
    "less the last byte": lambda data: data[:-1],
    "the head alone": lambda data: data[:9],
    "the file twice": lambda data: data + data,
    "from its end": lambda data: data[::-1],
    "no zeros": lambda data: data.replace(b"\0\0\0\0", b"\xff\xff\xff\xff"),
    "all zeros behind its head": lambda data: data[:16] + b"\0" * (1 << 20),
    "all ones behind its head": lambda data: data[:16] + b"\xff" * (1 << 20),
    "another head": lambda data: b"PK\x03\x04" + data[4:],
    "packed": lambda data: gzip.compress(data),
    "its middle a thousand times": lambda data: (
        data[: len(data) // 3] + data[len(data) // 3 : len(data) // 3 + 32] * 1000 + data[len(data) // 3 :]
    ),
    "small lengths as large as can be": each_word(lambda _: 0xFFFFFFFF, "<I"),
    "small lengths below zero": each_word(lambda value: -value, "<Q"),
    "small lengths times a thousand": each_word(lambda value: value * 1000, "<H"),
    "lengths the other way round": each_word(lambda value: value << 16, ">I"),
    "one length too short": each_word(lambda value: value - 1, "<I"),
    "the last kilobyte first": lambda data: data[-1024:] + data[:-1024],
    "every hundredth byte turned": lambda data: bytes(
        one ^ 255 if at % 100 == 99 else one for at, one in enumerate(data)
    ),
    "letters in place of numbers": lambda data: re.sub(rb"[0-9]", b"x", data),
    "four megabytes behind": lambda data: data + b"\x00\x01\x02\x03" * (1 << 20),
}


# ---------------------------------------------------------------------- particular readers
def varint(value: int) -> bytes:
    found = b""
    while value > 127:
        found, value = found + bytes([value & 127 | 128]), value >> 7
    return found + bytes([value])


def message(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def graph(tensor: bytes) -> bytes:
    return message(7, message(5, tensor))


def deep_graph(depth: int) -> bytes:
    found = message(5, message(8, b"w"))
    for _ in range(depth):
        found = message(1, message(5, message(6, found)))
    return message(7, found)


def torch_file(document: Callable[[Any], Any]) -> bytes:
    import io

    import torch

    made = io.BytesIO()
    torch.save(document(torch), made)
    return made.getvalue()


def shared(torch: Any) -> Any:
    """Sixty dictionaries, each of which holds the one before twice."""
    one = {"w": torch.zeros(1)}
    for _ in range(60):
        one = {"a": one, "b": one}
    return one


def round_about(torch: Any) -> Any:
    one: dict[str, Any] = {"w": torch.zeros(1)}
    one["again"] = one
    return one


def npy(shape: str, kind: str = "<f4", more: bytes = b"\0" * 64) -> bytes:
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + more


def safetensors(header: Any, size: int | None = None, more: bytes = b"\0" * 64) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + more


def tokenizer(**changes: int) -> Idea:
    """A vocabulary with other ids."""

    def made(data: bytes) -> bytes:
        document = json.loads(data)
        inside = document.get("engine", document)
        if "source" in document:
            inside = document["source"]
        inside["model"]["vocab"].update(changes)
        return json.dumps(document).encode()

    return made


def added(number: Any) -> Idea:
    def made(data: bytes) -> bytes:
        document = json.loads(data)
        document["added_tokens"][0]["id"] = number
        return json.dumps(document).encode()

    return made


def described(**facts: Any) -> Idea:
    def made(data: bytes) -> bytes:
        document = json.loads(data)
        document.setdefault("data", {}).setdefault("train", {}).update(facts)
        return json.dumps(document).encode()

    return made


def configured(**settings: Any) -> Idea:
    def made(data: bytes) -> bytes:
        document = json.loads(data)
        document["settings"].update(settings)
        return json.dumps(document).encode()

    return made


def said(**facts: Any) -> Idea:
    return lambda data: json.dumps({**json.loads(data), **facts}).encode()


ONNX: dict[str, Idea] = {
    "E7: 300,000 sizes of 2**62": lambda _: graph((b"\x08" + varint(1 << 62)) * 300_000 + b"\x10\x01" + message(8, b"w")),
    "the same packed": lambda _: graph(message(1, varint(1 << 62) * 300_000) + b"\x10\x01" + message(8, b"w")),
    "more fields than are read": lambda _: message(7, b"\x08\x01" * 2_100_000),
    "a thousand graphs in graphs": lambda _: deep_graph(1000),
    "E10: numbers elsewhere": lambda _: graph(b"\x08\x02\x10\x01" + message(8, b"w") + message(13, message(1, b"location") + message(2, b"/etc/passwd")) + b"\x70\x01"),
    "a number of twenty bytes": lambda _: b"\xff" * 20,
    "an axis below zero": lambda _: graph(b"\x08" + varint((1 << 64) - 1) + b"\x10\x01" + message(8, b"w") + message(9, b"\0" * 4)),
}  # fmt: skip
IDS: dict[str, Idea] = {
    "E6: an id of 2**31": tokenizer(a=1 << 31),
    "an id of 2**62": tokenizer(a=1 << 62),
    "an id below zero": tokenizer(a=-1),
    "an id of 100,000 among few": tokenizer(a=100_000),
}
ARRAYS: dict[str, Idea] = {
    "a shape of 2**62": lambda _: npy("(4611686018427387904, 4)"),
    "a shape below zero": lambda _: npy("(-1, 4)"),
    "a hundred axes": lambda _: npy(f"({'1, ' * 100})", more=b"\0" * 4),
    "objects": lambda _: npy("(1,)", "|O"),
    "a shape that is a sum": lambda _: npy("(" + "1+" * 10_000 + "1,)"),
}
HEADERS: dict[str, Idea] = {
    "E7: a header of 60 megabytes": lambda _: safetensors(b'{"a":"' + b"x" * (60 << 20) + b'"}'),
    "a header longer than any file": lambda _: safetensors({}, 1 << 62),
    "a header of lists": lambda _: safetensors(b"[" * 100_000 + b"]" * 100_000),
    "a shape larger than the file": lambda _: safetensors({"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 64]}}),
    "arrays over each other": lambda _: safetensors({name: {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]} for name in "ab"}),
}  # fmt: skip
CONFIGS: dict[str, Idea] = {
    "E9: 10**12 examples": described(kind="corpus", name="parity", variant="12", split="train", size=10**12),
    "E9: 1e308 examples": described(kind="corpus", name="parity", variant="12", split="train", size=1e308),
    "E9: facts that are a list": lambda data: json.dumps(
        {**json.loads(data), "data": {"train": []}}
    ).encode(),
    "held out of a list": described(kind="held-out", of=[]),
    "a million times held out": described(kind="held-out", of={"kind": "held-out", "size": -1}),
    "a billion layers": configured(layers=10**9),
    "a width of a billion": configured(hidden=10**9),
    "a width of 100,000": configured(hidden=100_000),
}
PARTICULAR: dict[str, dict[str, Idea]] = {
    "onnx": ONNX,
    "export graph": ONNX,
    "tokenizer.json": IDS,
    "pair tokenizer": IDS,
    "own tokenizer": {"a size of 2**31": said(size=1 << 31), "special symbols beyond": said(special=[1 << 40] * 4)},
    "library tokenizer": {
        **IDS, "an added id of 2**31": added(1 << 31), "an added id of a text": added("1"), "no model": said(model=None),
        "a model that is a list": said(model=[]),
    },
    "npy": ARRAYS,
    "safetensors": HEADERS,
    "foreign weights": HEADERS,
    "hmm": HEADERS,
    "kalman": HEADERS,
    "words": HEADERS,
    "state dict": {
        "E7: dictionaries shared sixty times": lambda _: torch_file(shared),
        "a dictionary in itself": lambda _: torch_file(round_about),
        "numbers that are not stored": lambda _: torch_file(lambda torch: {"w": torch.zeros(1).expand(1 << 40)}),
        "a list of tensors": lambda _: torch_file(lambda torch: [torch.zeros(2)] * 1000),
        "names that are numbers": lambda _: torch_file(lambda torch: {1: {2: torch.zeros(2)}}),
    },
    "json tensors": {
        "E7: a shape of 300,000 sizes": lambda _: json.dumps({"w": {"shape": [1 << 62] * 300_000, "dtype": "float32", "data": "AAAA"}}).encode(),
        "a shape of texts": lambda _: json.dumps({"w": {"shape": ["1"], "dtype": "float32", "data": "AAAAAA=="}}).encode(),
        "a shape of objects": lambda _: json.dumps({"w": {"shape": [{}], "dtype": "float32", "data": "AAAA"}}).encode(),
    },
    "config.json": CONFIGS,
    "run, config.json": CONFIGS,
    "published config": {
        "B7: 2**31 symbols": said(vocab_size=1 << 31), "B7: 10**12 symbols": said(vocab_size=10**12),
        "a number below all": said(n_embd=-(1 << 40)), "a nested number": said(rope_scaling={"factor": 10**15}),
    },
    "export.json": {
        "files elsewhere": said(files={"../../etc/passwd": "0"}), "graphs that are a list": said(graphs=[]),
        "facts that are a list": said(facts=[1]), "a version to come": said(format=99), "axes that are numbers": said(graphs={"model": 1}),
    },
}  # fmt: skip


def cases(name: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield (idea, ending, file) for a reader."""
    files, _ = targets()[name]
    seed, ending = files[0].read_bytes(), "".join(files[0].suffixes)
    turn = list(targets()).index(name)
    for idea, made in PARTICULAR.get(name, {}).items():
        yield idea, ending, made(seed)
    pools = [pool for pool in (TEXTS, VALUES, BYTES) if fits(pool, seed, ending)]
    for pool in pools:
        ideas = list(pool.items())
        for number in range(EACH):
            idea, made = ideas[(turn * EACH + number) % len(ideas)]
            yield idea, ending, made(seed)


def fits(pool: dict[str, Idea], seed: bytes, ending: str) -> bool:
    plain = not ending.endswith((".gz", ".zst", ".zip"))
    is_json = ".json" in ending and plain
    try:
        seed.decode()
    except UnicodeDecodeError:
        plain = False
    return is_json if pool is VALUES else plain and not is_json if pool is TEXTS else not plain


def test_every_reader_has_five_files_and_no_idea_is_used_more_than_ten_times() -> None:
    ideas, total = Counter[str](), 0
    for name in targets():
        found = [idea for idea, *_ in cases(name)]
        assert len(found) >= EACH, name
        ideas.update(found)
        total += len(found)
    assert max(ideas.values()) <= MOST, ideas.most_common(3)
    assert total >= 250


class TooLongError(BaseException):
    """Five seconds of the processor are over."""


def late(*_: Any) -> None:
    raise TooLongError


@pytest.fixture
def bounded() -> Iterator[None]:
    """A gibibyte more than is used now, and five seconds of the processor for each file."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, before[1]))
    handler = signal.signal(signal.SIGPROF, late)
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.signal(signal.SIGPROF, handler)
    resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize("name", list(targets()))
def test_a_hostile_file_is_refused_in_one_sentence_or_read(tmp_path: Path, name: str, bounded: None) -> None:
    files, reader = targets()[name]
    (tmp_path / "warm").mkdir()
    warm = tmp_path / "warm" / f"case{''.join(files[0].suffixes)}"
    warm.write_bytes(files[0].read_bytes())
    with contextlib.suppress(AnaphoraError):  # of what is not long enough to be used
        reader(warm)  # compiles what it needs
    refused = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, (idea, ending, content) in enumerate(cases(name)):
            (tmp_path / str(number)).mkdir()
            path = tmp_path / str(number) / f"case{ending}"
            path.write_bytes(content)
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                reader(path)
            except (AnaphoraError, Unusable) as error:
                refused += 1
                assert "\n" not in str(error), idea  # noqa: PT017
            except ValueError as error:
                assert name == "json", (idea, error)  # noqa: PT017
                refused += 1
            except BaseException as error:
                raise AssertionError(f"{idea}: {type(error).__name__}: {str(error)[:300]}") from error
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
    assert refused or name not in PARTICULAR
