"""C kernels: compiled once, for the instruction set that is wanted; without a compiler everything still runs."""

from __future__ import annotations

import multiprocessing
import warnings
from pathlib import Path

import pytest
import torch
from recurrence_results import with_compiler

from anaphora import nn
from anaphora.engine import prepare
from anaphora.errors import AnaphoraError
from anaphora.native import c as compiler
from anaphora.native import cache as kernel_cache
from anaphora.native import isa
from anaphora.native.derived import forget

SOURCE = "int answer(void){return %d;}"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ANAPHORA_CACHE", str(tmp_path))
    return tmp_path / "kernels"


def _fresh_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler.CLibrary, "opened", {})
    monkeypatch.setattr(prepare, "_warned", set())


@with_compiler
def test_a_kernel_is_compiled_once_and_then_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compiler.load(SOURCE % 41, "test").answer() == 41
    (library,) = cache.glob("test-*.so")
    written = library.stat().st_mtime_ns
    monkeypatch.setattr(compiler, "_build", lambda *_: pytest.fail("compiled again"))
    assert compiler.load(SOURCE % 41, "test").answer() == 41
    assert library.stat().st_mtime_ns == written


@with_compiler
@pytest.mark.parametrize("damage", ["empty", "cut", "flipped"])
def test_a_damaged_library_is_made_again(cache: Path, damage: str) -> None:
    number = {"empty": 1, "cut": 2, "flipped": 3}[damage]
    compiler.load(SOURCE % number, "test")
    (library,) = cache.glob("test-*.so")
    data = bytearray(library.read_bytes())
    library.unlink()  # the loaded one stays mapped
    if damage == "empty":
        data = bytearray()
    elif damage == "cut":
        data = data[: len(data) // 2]
    else:
        data[len(data) // 2] ^= 0xFF
    library.write_bytes(data)
    stem = library.stem.rpartition("-")[0]
    assert list(kernel_cache.found(stem, ".so")) == []
    assert compiler.load(SOURCE % number, "test").answer() == number
    assert len(list(kernel_cache.found(stem, ".so"))) == 1


def _load_in_a_process(number: int, results: multiprocessing.Queue[int]) -> None:
    results.put(compiler.load(SOURCE % number, "race").answer())


@with_compiler
def test_processes_that_build_at_once(cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        jobs = [context.Process(target=_load_in_a_process, args=(77, results)) for _ in range(4)]
        for job in jobs:
            job.start()
    for job in jobs:
        job.join()
    assert [job.exitcode for job in jobs] == [0] * 4
    assert [results.get() for _ in jobs] == [77] * 4
    assert len(list(cache.iterdir())) == 1


def test_without_a_compiler_recurrences_still_run_and_say_so_once(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = nn.GRU(3, 5)
    x = torch.randn(4, 6, 3, requires_grad=True)
    y, _ = nn.Recurrent(cell)(x)
    leaves = [x, *cell.parameters()]
    expected = torch.autograd.grad(y.square().sum(), leaves)
    _fresh_engines(monkeypatch)
    monkeypatch.setattr(compiler, "compiler", lambda: None)
    forget(cell)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        z, _ = nn.Recurrent(cell)(x)
        nn.Recurrent(nn.MGU(3, 5))(x)
    assert len([w for w in said if "there is no C compiler" in str(w.message)]) == 1
    torch.testing.assert_close(z, y)
    for a, b in zip(torch.autograd.grad(z.square().sum(), leaves), expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    state = nn.Recurrent(cell).initial_state(4, x)
    with torch.no_grad():
        torch.testing.assert_close(nn.Recurrent(cell).eval().step(x[:, 0], state)[0], y[:, 0])
    forget(cell)


@with_compiler
def test_another_version_of_the_compiler_compiles_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real, tool = compiler.compiler(), tmp_path / "cc"
    monkeypatch.setattr(compiler, "compiler", lambda: str(tool))
    for version in (1, 2):
        tool.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "cc {version}" && exit\nexec {real} "$@"\n')
        tool.chmod(0o755)
        compiler._version.cache_clear()
        assert compiler.load(SOURCE % 9, "test").answer() == 9
        assert len({path.stem.split("-")[1] for path in cache.glob("test-*.so")}) == version
    compiler._version.cache_clear()


def test_a_compiler_that_fails_is_reported_in_words(
    cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'no room for opinions' >&2\nexit 1\n")
    broken.chmod(0o755)
    _fresh_engines(monkeypatch)
    monkeypatch.setattr(compiler, "compiler", lambda: str(broken))
    x = torch.randn(4, 6, 3)
    with pytest.warns(UserWarning, match="no room for opinions"):
        y, _ = nn.Recurrent(nn.MGU(3, 5))(x)
    assert y.shape == (4, 6, 5)
    with pytest.raises(compiler.CannotCompile, match="failed"):
        compiler.load(SOURCE % 5, "test")


@with_compiler
def test_the_instruction_set_is_chosen_by_a_variable(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    monkeypatch.delenv("ANAPHORA_ISA", raising=False)
    assert isa.isa() == "native"
    source = (
        "int width(void){return VECTOR_BYTES;} float fused(float a, float b, float c){return FMA(a, b, c);}"
    )
    expected = {"baseline": 16, "avx2": 32, "avx512": 64}
    for word in isa.executable():
        monkeypatch.setenv("ANAPHORA_ISA", word)
        made = compiler.load(source, "test").width()
        assert made == expected.get(word, made)
    assert len(list(cache.glob("test-*.so"))) == len(isa.executable())  # one library for each


@with_compiler
def test_an_instruction_set_that_cannot_be_used_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANAPHORA_ISA", "sse9")
    with pytest.raises(
        AnaphoraError, match=r"ANAPHORA_ISA=sse9 is not an instruction set; use one of .*native"
    ):
        compiler.load(SOURCE % 6, "test")
    monkeypatch.setattr(isa, "_cpu_facts", lambda: ("flags : sse2 avx2",))
    monkeypatch.setenv("ANAPHORA_ISA", "avx512")
    with pytest.raises(AnaphoraError, match=r"this CPU cannot execute; use one of baseline, native"):
        isa.isa()


def test_without_a_word_of_our_own_pytorchs_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isa, "_cpu_facts", lambda: ("flags : " + " ".join(isa._NEEDED["avx2"]),))
    monkeypatch.setattr(isa.platform, "machine", lambda: "x86_64")
    monkeypatch.delenv("ANAPHORA_ISA", raising=False)
    for theirs, ours in {"default": "baseline", "avx2": "avx2", "avx512": "native", "vsx": "native"}.items():
        monkeypatch.setenv("ATEN_CPU_CAPABILITY", theirs)
        assert isa.isa() == ours
    monkeypatch.setenv("ANAPHORA_ISA", "baseline")
    assert isa.isa() == "baseline"
    monkeypatch.setattr(isa.platform, "machine", lambda: "aarch64")
    with pytest.raises(AnaphoraError, match="use one of native"):
        isa.isa()
