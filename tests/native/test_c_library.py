"""`CLibrary`: functions in C get the numbers that a tensor has, or an error; no tensor makes them read what is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from anaphora.native import c as compiler
from anaphora.native.c import CLibrary, address_of, plain

SOURCE = """
int twice(const long long *n, void *const *p) {
  const REAL *from = p[0]; REAL *to = p[1];
  for (long long i = 0; i < n[0]; i++) to[i] = 2 * from[i];
  return n[1];
}
long long bytes(long long count) { return count * sizeof(REAL); }
void clear(const long long *n, void *const *p) { ((REAL *)p[0])[0] = 0; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CLibrary]:
    if compiler.compiler() is None:
        pytest.skip("no C compiler here")
    patch = pytest.MonkeyPatch()
    patch.setenv("ANAPHORA_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield CLibrary(
        "twice",
        lambda double: f"#define REAL {'double' if double else 'float'}\n{SOURCE}",
        no_memory="there is no memory",
        void=("clear",),
        counts=("bytes",),
    )
    patch.undo()


class Held(Tensor):
    """A tensor without memory of its own."""

    @staticmethod
    def __new__(cls, like: Tensor) -> Held:
        return Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError


def _fake() -> Tensor:
    with FakeTensorMode():
        return torch.ones(3)


UNREADABLE: dict[str, Callable[[], Tensor]] = {
    "meta": lambda: torch.ones(3, device="meta"),
    "fake": _fake,
    "a wrapper": lambda: Held(torch.ones(3)),
    "functional": lambda: torch._to_functional_tensor(torch.ones(3)),
    "zeros without memory": lambda: torch._efficientzerotensor(3),
}
MEANT_OTHERWISE: dict[str, Callable[[], Tensor]] = {
    "sparse": lambda: torch.ones(3).to_sparse(),
    "a sign put off": lambda: torch.conj(torch.ones(3, dtype=torch.complex64)).imag,
    "a subclass": lambda: torch.ones(3).as_subclass(type("Named", (Tensor,), {})),
}


@pytest.mark.parametrize("name", [*UNREADABLE, *MEANT_OTHERWISE])
def test_only_tensors_that_show_all_they_are_are_plain(name: str, library: CLibrary) -> None:
    one = (UNREADABLE | MEANT_OTHERWISE)[name]()
    assert not plain(torch.ones(3), one)
    assert not library.ready(torch.ones(3), one)


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize("name", UNREADABLE)
def test_what_has_no_memory_is_refused_before_c_reads_it(name: str, library: CLibrary) -> None:
    with pytest.raises(TypeError, match="in the CPU's memory"):
        library.call(torch.float32, "twice", (3, 0), (UNREADABLE[name](), torch.empty(3)))


@pytest.mark.parametrize("transform", [torch.func.vmap, lambda f: lambda x: torch.func.grad(f)(x[0])])
def test_a_transform_sees_no_plain_tensor(transform: Any, library: CLibrary) -> None:
    def seen(x: Tensor) -> Tensor:
        assert not library.ready(x)
        with pytest.raises(RuntimeError):
            library.call(torch.float32, "twice", (3, 0), (x, torch.empty(3)))
        return x.sum()

    transform(seen)(torch.ones(2, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_type_has_functions_of_its_own(dtype: torch.dtype, library: CLibrary) -> None:
    x, y = nn.Parameter(torch.tensor([1.0, -2.0, 3.0], dtype=dtype)), torch.empty(3, dtype=dtype)
    assert library.ready(x, None, y, torch.empty(0, dtype=dtype))
    library.call(dtype, "twice", (3, 0), (address_of(x), y))
    assert y.tolist() == [2.0, -4.0, 6.0]
    library.call(dtype, "clear", (), (y,))
    assert y.tolist() == [0.0, -4.0, 6.0]
    assert library.count(dtype, "bytes", 2**40) == 2**40 * dtype.itemsize


def test_other_types_and_mixed_ones_are_not_ready(library: CLibrary) -> None:
    assert not library.ready(torch.ones(3), torch.ones(3).double())
    assert not library.ready(torch.ones(3).half())
    assert not library.ready(None)


def test_what_c_reports_is_raised(library: CLibrary) -> None:
    given = (torch.ones(1), torch.empty(1))
    with pytest.raises(MemoryError, match="there is no memory"):
        library.call(torch.float32, "twice", (1, 1), given)
    with pytest.raises(MemoryError, match="none at all"):
        library.call(torch.float32, "twice", (1, 1), given, no_memory="none at all")
    with pytest.raises(ValueError, match="not there"):
        library.call(torch.float32, "twice", (1, 2), given, out_of_range=lambda: "it is not there")


def test_an_address_does_not_move_what_is_cloned_lazily() -> None:
    x = torch.ones(100)
    kept = torch._lazy_clone(x)
    place = address_of(x)
    assert address_of(kept) == place == address_of(x)
    x.data_ptr()  # writable memory is asked for
    assert address_of(x) != place or address_of(kept) != place


def test_without_a_compiler_nothing_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "compiler", lambda: None)
    library = CLibrary("nothing", lambda double: "int nothing;", no_memory="")
    assert library.functions() is None
    assert not library.ready(torch.ones(1))
    with pytest.raises(compiler.CannotCompile):
        library.load(torch.float32)
