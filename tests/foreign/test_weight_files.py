"""``an.load`` of files of weights: recurrent layers recognised, modules filled, damaged files refused. Needs no package of others."""

from __future__ import annotations

import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import anaphora as an
from anaphora.cli import main
from anaphora.errors import AnaphoraError, RunError
from anaphora.foreign.architectures.silero_vad import SileroVAD
from anaphora.foreign.published import GONE
from anaphora.foreign.rules import gates, same, transposed
from anaphora.settings.removed import REMOVED


class Small(nn.Module):
    """What a user of torch has: a recurrent layer and one above it."""

    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM, **options: Any):
        super().__init__()
        self.rnn = kind(5, 7, batch_first=True, **options)  # type: ignore[call-arg]
        self.head = nn.Linear(7 * (2 if self.rnn.bidirectional else 1), 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.rnn(x)[0])


class Ours(nn.Module):
    def __init__(self, cell: an.nn.Cell, **options: Any):
        super().__init__()
        self.encoder = an.nn.Recurrent(cell, **options)
        self.output = nn.Linear(self.encoder.output_size, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(self.encoder(x)[0])


X = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(1))
NAMES = {"rnn": "encoder", "head": "output"}


def cell_of(kind: type[nn.RNNBase]) -> an.nn.Cell:
    return {nn.LSTM: an.nn.LSTM(5, 7), nn.GRU: an.nn.GRU(5, 7, reset="after"), nn.RNN: an.nn.Elman(5, 7)}[
        kind
    ]


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_state_dict_of_torch_fills_a_module(
    tmp_path: Path, kind: type[nn.RNNBase], both: bool, layers: int
) -> None:
    theirs = Small(kind, num_layers=layers, bidirectional=both, bias=layers == 1)
    torch.save(theirs.state_dict(), tmp_path / "w.pt")
    module = Ours(cell_of(kind), layers=layers, bidirectional=both)
    assert an.load(tmp_path / "w.pt", into=module, names=NAMES) is module
    torch.testing.assert_close(module(X), theirs(X), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("ending", ["pt", "npz", "safetensors"])
def test_a_file_of_one_recurrent_layer_is_recognised(
    tmp_path: Path, kind: type[nn.RNNBase], ending: str
) -> None:
    theirs = kind(5, 7, num_layers=2, bidirectional=True, batch_first=True)  # type: ignore[call-arg]
    tensors, path = (
        {f"encoder.{name}": one for name, one in theirs.state_dict().items()},
        tmp_path / f"w.{ending}",
    )
    if ending == "pt":
        torch.save({"model": tensors, "optimizer": {"state": {}, "param_groups": []}, "epoch": 3}, path)
    elif ending == "npz":
        np.savez(path, **{name: one.numpy() for name, one in tensors.items()})
    else:
        save_file(tensors, path)
    found = an.load(path, device="cpu")
    assert isinstance(found, an.nn.Recurrent)
    torch.testing.assert_close(found(X)[0], theirs(X)[0], rtol=0, atol=1e-6)


def test_rules_say_what_is_more_than_a_name(tmp_path: Path) -> None:
    """Gates in another order, transposed, as Keras has them."""
    theirs = Small(nn.GRU)
    rnn = theirs.rnn

    def turned(given: Tensor) -> np.ndarray[Any, Any]:
        r, z, n = given.detach().chunk(3)
        swapped = torch.cat((z, r, n))
        return (swapped.T if swapped.dim() == 2 else swapped).numpy()

    np.savez(
        tmp_path / "w.npz",
        kernel=turned(rnn.weight_ih_l0),
        again=turned(rnn.weight_hh_l0),
        b0=turned(rnn.bias_ih_l0),
        b1=turned(rnn.bias_hh_l0),
        dense=theirs.head.weight.detach().T.numpy(),
        bias=theirs.head.bias.detach().numpy(),
    )
    module = Ours(an.nn.GRU(5, 7, reset="after"))
    rules = [
        *gates(module.encoder, 0, "encoder", "kernel", "again", "b0", "b1", order="zrn", transposed=True),
        transposed("dense", "output.weight"),
        same("bias", "output.bias"),
    ]
    an.load(tmp_path / "w.npz", into=module, rules=rules)
    torch.testing.assert_close(module(X), theirs(X), rtol=0, atol=1e-6)


def test_an_lstm_in_the_order_of_onnx(tmp_path: Path) -> None:
    theirs = nn.LSTM(5, 7, batch_first=True)

    def turned(given: Tensor) -> Tensor:
        i, f, g, o = given.detach().chunk(4)
        return torch.cat((i, o, f, g))

    tensors = {name: turned(one) for name, one in theirs.state_dict().items()}
    save_file(tensors, tmp_path / "w.safetensors")
    module = nn.ModuleDict({"lstm": an.nn.Recurrent(an.nn.LSTM(5, 7))})
    layer = module["lstm"]
    assert isinstance(layer, an.nn.Recurrent)
    rules = gates(layer, 0, "lstm", *tensors, order="iofg")
    an.load(tmp_path / "w.safetensors", into=module, rules=rules)
    torch.testing.assert_close(layer(X)[0], theirs(X)[0], rtol=0, atol=1e-6)


def test_a_checkpoint_of_several_state_dicts_asks_which(tmp_path: Path) -> None:
    one, other = Small(), Small()
    torch.save({"raw": one.state_dict(), "ema": other.state_dict()}, tmp_path / "w.pt")
    module = Ours(an.nn.LSTM(5, 7))
    with pytest.raises(RunError, match=r"several state dicts \(raw, ema\); name one"):
        an.load(tmp_path / "w.pt", into=module, names=NAMES)
    an.load(tmp_path / "w.pt", into=module, names=NAMES, part="ema")
    torch.testing.assert_close(module(X), other(X), rtol=0, atol=1e-6)
    with pytest.raises(RunError, match="no state dict of the name 'best'"):
        an.load(tmp_path / "w.pt", into=module, part="best")


def saved(tensors: dict[str, Any]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        torch.save(tensors, folder / "w.pt")
        return folder / "w.pt"

    return write


def module_file(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        found = dict(Small().state_dict())
        change(found)
        return saved(found)(folder)

    return write


class Payload:
    ran: list[str] = []  # noqa: RUF012

    def __reduce__(self) -> Any:
        return (Payload.ran.append, ("executed",))


def pickled_array(folder: Path) -> Path:
    np.savez(folder / "w.npz", a=np.array([Payload()], dtype=object))
    Payload.ran.clear()
    return folder / "w.npz"


def packed(name: str, size: int) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "w.npz"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, b"\0" * size)
        return path

    return write


def huge_head(folder: Path) -> Path:
    """An array whose head promises a terabyte."""
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (268435456000,), }"
    head += b" " * (117 - len(head)) + b"\n"
    with zipfile.ZipFile(folder / "w.npz", "w") as archive:
        archive.writestr("a.npy", b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head)
    return folder / "w.npz"


def cut_off(folder: Path) -> Path:
    path = saved(dict(Small().state_dict()))(folder)
    path.write_bytes(path.read_bytes()[:900])
    return path


def as_bytes(content: bytes, name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        Payload.ran.clear()
        return folder / name

    return write


def small_then_missing(found: dict[str, Any]) -> None:
    del found["rnn.bias_hh_l0"]


DAMAGES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (module_file(lambda t: t.pop("head.bias")), r"lacks output\.bias"),
    "missing gate": (module_file(small_then_missing), r"lacks encoder\.bias_hh_l0"),
    "wrong shape": (
        module_file(lambda t: t.update({"rnn.weight_hh_l0": torch.zeros(28, 8)})),
        r"encoder\.weight_hh_l0 \(28, 8\) instead of \(28, 7\)",
    ),
    "extra": (module_file(lambda t: t.update({"lora.A": torch.zeros(2)})), r"no counterpart here, lora\.A"),
    "not finite": (module_file(lambda t: t["head.bias"].fill_(torch.inf)), "not finite"),
    "spread": (
        module_file(lambda t: t.update({"head.bias": torch.zeros(1).expand(10**12)})),
        "not stored number by number",
    ),
    "no tensors": (saved({"epoch": 3}), "holds no tensors"),
    "a list": (saved([1, 2]), "holds a list and no state dict"),  # type: ignore[arg-type]
    "payload": (saved({"a": Payload()}), "holds more than tensors"),
    "plain pickle": (as_bytes(pickle.dumps(Payload()), "w.pt"), "holds more than tensors|cannot be read"),
    "pickled array": (pickled_array, "Python objects, which are never loaded"),
    "zip bomb": (packed("a.npy", 400_000_000), "unpacks to"),
    "torch zip bomb": (packed("archive/data.pkl", 30_000_000), "unpacks to more than it holds"),
    "promised": (huge_head, "promises"),
    "cut off": (cut_off, "cannot be read"),
    "cut off onnx": (as_bytes(b"\x08\x07\x3a\xff\x7f", "w.onnx"), "ends too early"),
    "no onnx": (as_bytes(b"\xff" * 40, "w.onnx"), "cannot be read"),
    "empty": (as_bytes(b"", "w.pt"), "is empty"),
    "header": (
        as_bytes((1 << 36).to_bytes(8, "little") + b"{}", "w.safetensors"),
        "cannot be read|no file of",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_refused_in_one_sentence(name: str, tmp_path: Path) -> None:
    write, sentence = DAMAGES[name]
    path, module = write(tmp_path), Ours(an.nn.LSTM(5, 7))
    before = {key: one.clone() for key, one in module.state_dict().items()}
    with pytest.raises(AnaphoraError, match=sentence) as caught:
        an.load(path, into=module, names=NAMES)
    assert "\n" not in str(caught.value)
    assert not Payload.ran
    assert all(torch.equal(one, before[key]) for key, one in module.state_dict().items())


def keras_archive(path: Path) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for name in ("metadata.json", "config.json", "model.weights.h5"):
            packed.writestr(name, "{}")
    return path


def hdf5(path: Path) -> Path:
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(800))
    return path


@pytest.mark.parametrize("write", [keras_archive, hdf5])
@pytest.mark.parametrize("into", [False, True])
def test_a_keras_file_says_how_to_convert_it(
    write: Callable[[Path], Path], into: bool, tmp_path: Path
) -> None:
    path = write(tmp_path / "model.weights")
    with pytest.raises(RunError, match=r"Keras file is not read; .*safetensors.*ONNX"):
        an.load(path, **({"into": Small()} if into else {}))


def test_a_file_that_does_not_say_what_it_is_asks_for_the_module(tmp_path: Path) -> None:
    torch.save(Small().state_dict(), tmp_path / "w.pt")
    with pytest.raises(RunError, match=r"6 tensors \(rnn.weight_ih_l0 \(28, 5\).*into=MODULE"):
        an.load(tmp_path / "w.pt")
    with pytest.raises(RunError, match="'lstm' that names gives"):
        an.load(tmp_path / "w.pt", into=Ours(an.nn.LSTM(5, 7)), names={"lstm": "encoder"})
    with pytest.raises(RunError, match="give the module too"):
        an.load(tmp_path / "w.pt", names=NAMES)
    torch.save(nn.RNN(3, 4).state_dict(), tmp_path / "rnn.pt")
    with pytest.raises(RunError, match="but not its nonlinearity"):
        an.load(tmp_path / "rnn.pt")
    with pytest.raises(RunError, match="cannot be read: no such file"):
        an.load(tmp_path / "none.pt", into=Small())


def test_a_published_file_with_other_tensors_names_them(tmp_path: Path) -> None:
    """That of silero-vad, made here with weights at random."""
    tensors = {
        "stft_conv.weight": torch.randn(258, 1, 256),
        **{
            f"conv{i}.{end}": one
            for i, layer in enumerate(SileroVAD().convolutions, 1)
            for end, one in layer.state_dict().items()
        },
        **{f"lstm_cell.{name}": one for name, one in nn.LSTMCell(128, 128).state_dict().items()},
        **{f"final_conv.{name}": one for name, one in nn.Conv1d(128, 1, 1).state_dict().items()},
    }
    torch.save({"step": 1, "model_state": tensors}, tmp_path / "w.pt")
    assert isinstance(an.load(tmp_path / "w.pt"), SileroVAD)
    torch.save({"model_state": tensors | {"final_conv.bias": torch.zeros(3)}}, tmp_path / "w.pt")
    with pytest.raises(RunError, match=r"final_conv.bias \(3\) instead of \(1\).*as it was published"):
        an.load(tmp_path / "w.pt")
    torch.save({"model_state": tensors}, tmp_path / "w.pt")
    with pytest.raises(RunError, match="holds a SileroVAD, not a Translator"):
        an.load(tmp_path / "w.pt", an.Translator)


@pytest.mark.parametrize("name", GONE)
def test_a_file_that_earlier_versions_read_says_what_to_do(name: str, tmp_path: Path) -> None:
    path = tmp_path / "w.npz"
    np.savez(path, **{tensor: np.ones(3) for tensor in GONE[name]})
    with pytest.raises(RunError, match=re.escape(f"{path}: {REMOVED[name]}")):
        an.load(path)


@pytest.mark.parametrize(
    ("name", "file"),
    [("Joey NMT", "config.yaml"), ("sockeye", "params.best"), ("sockeye", "vocab.src.0.json")],
)
def test_a_folder_of_a_toolkit_says_what_to_do(
    name: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / file).write_text("model: 1")
    with pytest.raises(RunError, match=re.escape(f"{tmp_path}: {REMOVED[name]}")):
        an.load(tmp_path)
    assert main.run(["import", str(tmp_path), "-o", str(tmp_path / "run")]) == 2
    assert REMOVED[name] in capsys.readouterr().err
