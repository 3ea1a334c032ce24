"""g2p-en as a `Translator`: the phones and the scores of its own numpy decoder."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from foreign_packages import package

import anaphora as an
from anaphora.cli import main
from anaphora.data.symbols import BOS

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
"""Their package leaves a file open."""

WORDS = [
    "activationist",
    "anaphora",
    "supercalifragilistic",
    "aardvark",
    "rhythm",
    "queue",
    "thought",
    "xylophone",
    "o'clock",
    "naïve",
    "colonel",
    "zzz",
    "a",
    "antidisestablishmentarianism",
    "jalapeno",
    "blorptastic",
    "transformer",
    "recurrent",
    "gated",
]


@pytest.fixture(scope="module")
def path() -> Path:
    return package("g2p_en") / "checkpoint20.npz"


@pytest.fixture(scope="module")
def m(path: Path) -> Any:
    return an.load(path, device="cpu")


@pytest.fixture
def theirs(path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Their class, with what it wants from NLTK for running text replaced by nothing: words are given here."""
    names = ("nltk", "nltk.corpus", "nltk.tokenize", "inflect")
    stubs: dict[str, Any] = {name: ModuleType(name) for name in names}
    stubs["nltk"].pos_tag, stubs["nltk"].data = None, SimpleNamespace(find=lambda name: name)
    stubs["nltk.corpus"].cmudict = SimpleNamespace(dict=dict)
    stubs["nltk.tokenize"].TweetTokenizer = lambda: SimpleNamespace(tokenize=str.split)
    stubs["inflect"].engine = lambda: None
    for name, stub in stubs.items():
        monkeypatch.setitem(sys.modules, name, stub)
    for name in ("g2p_en", "g2p_en.g2p", "g2p_en.expand"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(path.parent.parent))
    found = importlib.import_module("g2p_en.g2p").G2p()
    for name in ("g2p_en", "g2p_en.g2p", "g2p_en.expand"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return found


def test_every_word_has_the_phones_of_their_decoder(m: Any, theirs: Any) -> None:
    assert m.predict(WORDS) == [" ".join(theirs.predict(word)) for word in WORDS]


def test_scores_of_each_step_equal_theirs(m: Any, theirs: Any) -> None:
    for word in WORDS[:4]:
        states = theirs.gru(
            theirs.encode(word),
            len(word) + 1,
            *(getattr(theirs, f"enc_{one}") for one in ("w_ih", "w_hh", "b_ih", "b_hh")),
        )
        symbols, h, expected = [BOS], states[:, -1], []
        for _ in range(5):
            x = theirs.dec_emb[symbols[-1:]]
            h = theirs.grucell(x, h, theirs.dec_w_ih, theirs.dec_w_hh, theirs.dec_b_ih, theirs.dec_b_hh)
            expected.append(h @ theirs.fc_w.T + theirs.fc_b)
            symbols.append(int(expected[-1].argmax()))
        ids = torch.tensor([[*m.tokenizer_.source.encode(word), 3]])
        with torch.no_grad():
            ours = m.model_(ids, torch.tensor([ids.shape[1]]), torch.tensor([symbols[:-1]]))
        np.testing.assert_allclose(ours[0].numpy(), np.concatenate(expected), rtol=0, atol=1e-4)


def test_it_becomes_a_run(path: Path, m: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "g2p"
    assert main.run(["import", str(path), "-o", str(run)]) == 0
    (tmp_path / "words.txt").write_text("\n".join(WORDS[:3]))
    capsys.readouterr()
    assert main.run(["predict", str(run), str(tmp_path / "words.txt")]) == 0
    assert capsys.readouterr().out.splitlines() == m.predict(WORDS[:3])
    again = an.load(run, an.Translator, device="cpu")
    assert again.predict(WORDS, beam=3) == m.predict(WORDS, beam=3)
    assert main.run(["inspect", str(run), "--view", "beam", "--text", "hello", "--json"]) == 0
    assert main.run(["inspect", str(run), "--view", "alignment", "--text", "hello"]) == 2
    assert "no attention" in capsys.readouterr().err
