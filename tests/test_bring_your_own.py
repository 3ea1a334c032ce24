"""The ways to bring your own, as docs/guides/bring-your-own.md shows them: trained, interrupted, resumed, loaded, inspected."""

from __future__ import annotations

import importlib
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import anaphora as an
import warm_command
from anaphora.errors import RunError, SettingsError
from anaphora.settings.own import parts_of
from anaphora.tasks.recipe import NEEDED
from anaphora.tasks.registry import TASKS, resolve
from anaphora.training.loop import Trainer

PAGE = Path(__file__).resolve().parent.parent / "docs" / "guides" / "bring-your-own.md"
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXT = PAGE.read_text(encoding="utf-8")
SETUP = "\n".join(CODE.findall(TEXT[: TEXT.index("\n## ")]))
WAYS = {m[1]: "\n".join(CODE.findall(m[2])) for m in SECTION.finditer(TEXT)}
ESTIMATORS = [name for name, code in WAYS.items() if ".fit(" in code and "an.fit" not in code]


class Power(BaseException):
    """The power goes."""


def run_way(name: str) -> dict[str, Any]:
    if "pandas" in WAYS[name]:
        pytest.importorskip("pandas")
    namespace: dict[str, Any] = {"__name__": "__page__"}
    exec(compile(SETUP + "\n" + WAYS[name], str(PAGE), "exec"), namespace)
    return namespace


def given_again(m: Any) -> dict[str, Any]:
    """The own parts of an estimator, by the settings they are of."""
    roots = {key.partition(".")[0] for key in parts_of(m.settings_)}
    return {root: getattr(m.settings_, root) for root in roots}


def test_a_search_and_a_language_model_change_what_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_way("18. A search, and a language model")
    m, asked = names["m"], {"search": names["no_echo"], "lm": names["lm"]}
    loaded = an.load("runs/search")
    assert loaded.predict(["a good film"], **asked, lm_weight=0.2) == names["outputs"]
    plain, heavy = (
        m.predict(["a good film"], details=True, beam=3, no_repeat=1, **lm)[0]
        for lm in ({}, asked | {"lm_weight": 50.0})
    )
    assert plain.score != heavy.score


def interrupt(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    step = Trainer._step

    def failing(self: Trainer) -> bool:
        if self.learner.standing.step == at:
            raise Power
        return step(self)

    monkeypatch.setattr(Trainer, "_step", failing)


def test_the_page_shows_each_way_in_six_lines() -> None:
    assert len(ESTIMATORS) >= 16
    for name, code in WAYS.items():
        assert len([line for line in code.splitlines() if line.strip()]) <= 6, name


@pytest.mark.parametrize("name", ESTIMATORS)
def test_trained_interrupted_resumed_loaded_and_inspected(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    monkeypatch.chdir(tmp_path / "whole")
    names = run_way(name)
    m = names["m"]
    (folder,) = Path("runs").iterdir()
    monkeypatch.chdir(tmp_path / "broken")
    with monkeypatch.context() as failing:
        interrupt(failing, 3)
        with pytest.raises(Power):
            run_way(name)
    resumed = type(m).resume(folder, **given_again(m))
    assert resumed.result_ == m.result_
    for key, weight in m.model_.state_dict().items():
        assert torch.equal(weight, resumed.model_.state_dict()[key]), key
    loaded = an.load(folder, **{k: v for k, v in given_again(m).items() if k in NEEDED})
    examples = {"classify": "reviews", "tag": "tagged", "translate": "pairs", "transcribe": "spoken"}
    x = names["X"][:1] if "X" in names else names[examples[m.command]][0][:1]
    assert loaded.predict(x) == m.predict(x)
    assert loaded.probe(x[0]).arrays


KILLED = """
import os, signal, sys
import anaphora.training.loop as loop
step = loop.Trainer._step
def killed(self):
    if self.learner.standing.step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self)
loop.Trainer._step = killed
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no kill on this system")
@pytest.mark.parametrize("name", ["1. A cell", "9. A callback"])
def test_resumed_after_a_real_kill(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "whole").mkdir()
    monkeypatch.chdir(tmp_path / "whole")
    m = run_way(name)["m"]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(KILLED + SETUP + "\n" + WAYS[name])
    done = warm_command.run(["script.py"])
    assert done.returncode == -signal.SIGKILL, done.stderr
    (folder,) = Path("runs").iterdir()
    # the script's own code is the page's; its hash is that of another file's lines, but of the same source
    resumed = type(m).resume(folder, **given_again(m), force=True)
    for name_, weight in m.model_.state_dict().items():
        assert torch.equal(weight, resumed.model_.state_dict()[name_])


def test_a_module_without_a_task_resumes_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (name,) = [name for name, code in WAYS.items() if "an.fit" in code]
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(3)
    whole = run_way(name)
    torch.manual_seed(3)
    with monkeypatch.context() as failing:
        interrupt(failing, 12)
        with pytest.raises(Power):
            run_way(name)
    fresh = torch.nn.Sequential(torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    loss = torch.nn.MSELoss()
    with pytest.raises(RunError, match="other batches than before"):
        an.fit(fresh, loss, whole["batches"][1:], steps=20, save_every=5, out="runs/module", resume=True)
    an.fit(fresh, loss, whole["batches"], steps=20, save_every=5, out="runs/module", resume=True)
    for key, weight in whole["module"].state_dict().items():
        assert torch.equal(weight, fresh.state_dict()[key])
    with pytest.raises(RunError, match=r"already holds a run; go on with it \(resume=True\)"):
        an.fit(fresh, loss, whole["batches"], out="runs/module")
    with pytest.raises(RunError, match=r"was trained by an.fit"):
        an.load("runs/module")


def test_an_own_view_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from anaphora.views.registry import VIEWS

    monkeypatch.chdir(tmp_path)
    names = run_way("1. A cell")
    (view,) = [name for name in WAYS if "A view" in name]
    exec(compile(WAYS[view], str(PAGE), "exec"), names)
    try:
        names["picture"].save("norms.svg")
        assert "Norms" in Path("norms.svg").read_text()
    finally:
        VIEWS.pop("norms")
    with pytest.raises(an.AnaphoraError, match="choose another word"):
        an.view("alignment")


NORMS = """
import numpy as np, anaphora as an
@an.view("norms_of_states", needs=("states",))
def norms(trace):
    return np.linalg.norm(trace.arrays["states"].values, axis=-1).reshape(1, -1)
"""


def test_inspect_shows_a_view_by_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from anaphora.cli.main import run
    from anaphora.views.registry import VIEWS

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("own_views.py").write_text(NORMS)
    run_way("3. A configured cell")
    words = ["inspect", "runs/configured", "--text", "a good film", "--svg", "norms.svg", "--view"]
    try:
        assert run([*words, "own_views:norms"]) == 0, capsys.readouterr().err
        assert "Norms of states" in Path("norms.svg").read_text()
        assert run([*words, "own_views:nothing"]) == 2
        assert "has no nothing" in capsys.readouterr().err
    finally:
        VIEWS.pop("norms_of_states", None)
        sys.modules.pop("own_views", None)


# ------------------------------------------------------------------ what is recorded, and who may import it


def trained(folder: Path) -> Any:
    data = [("a b", "x"), ("b a", "y")] * 4
    options: dict[str, Any] = {"steps": 2, "hidden": 4, "embedding": 4, "valid_every": 2, "save_every": 2}
    return an.Classifier("lstm", cell="own_cells:Leaky", **options).fit(data, valid=data, out=folder)


LEAKY = """
import torch, anaphora as an
class Leaky(an.nn.Cell):
    state = ("h",)
    def setup(self, inputs, hidden):
        self.a = an.nn.Affine(inputs, hidden, hidden)
    def step(self, x, h):
        return {keep} * h + torch.tanh(self.a(x, h))
"""


@pytest.fixture
def cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "own_cells.py"
    file.write_text(LEAKY.format(keep=0.5))
    monkeypatch.delitem(sys.modules, "own_cells", raising=False)
    yield file
    sys.modules.pop("own_cells", None)


def test_a_run_folder_alone_imports_nothing(cells: Path, tmp_path: Path) -> None:
    m = trained(tmp_path / "run")
    sys.modules.pop("own_cells")
    with pytest.raises(RunError, match=r"cell = own_cells:Leaky is code that the run names") as raised:
        an.load(tmp_path / "run")
    assert "\n" not in str(raised.value)
    assert "own_cells" not in sys.modules
    with pytest.raises(RunError, match=r"give it: resume\(RUN, cell=…\)"):
        an.Classifier.resume(tmp_path / "run", steps=4)
    assert an.load(tmp_path / "run", trust=True).predict(["a b"]) == m.predict(["a b"])
    with pytest.raises(SettingsError, match="loss is not an own part of"):
        an.load(tmp_path / "run", loss=len)


def test_changed_source_is_a_warning_on_load_and_refused_by_resume(cells: Path, tmp_path: Path) -> None:
    trained(tmp_path / "run")
    sys.modules.pop("own_cells")
    cells.write_text(LEAKY.format(keep=0.25))
    with pytest.warns(UserWarning, match=r"the source of cell \(own_cells:Leaky\) has changed"):
        an.load(tmp_path / "run", trust=True)
    with pytest.raises(RunError, match="put the old source back, or resume with --force"):
        an.Classifier.resume(tmp_path / "run", steps=4, trust=True)
    with pytest.warns(UserWarning, match="has changed"):
        an.Classifier.resume(tmp_path / "run", steps=4, trust=True, force=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        an.load(tmp_path / "run", trust=True)  # the forced run is on record now


def test_nothing_is_imported_from_the_run_folder_itself(
    cells: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained(tmp_path / "run")
    sys.modules.pop("own_cells")
    cells.rename(tmp_path / "run" / "own_cells.py")
    monkeypatch.chdir(tmp_path / "run")
    with pytest.raises(SettingsError, match="nothing is imported from a run folder"):
        an.load(tmp_path / "run", trust=True)


def test_a_loss_must_give_a_number_per_item() -> None:
    data = [("a b", "x"), ("b a", "y")] * 4
    with pytest.raises(SettingsError, match=r"must give one number per item"):
        an.Classifier("lstm", loss=torch.nn.CrossEntropyLoss(), steps=1, hidden=4).fit(data, valid=data)


def test_a_model_that_sees_ahead_is_refused() -> None:
    class Peeking(torch.nn.Module):
        def __init__(self, spec: Any):
            super().__init__()
            self.e = torch.nn.Embedding(spec.inputs, spec.outputs)

        def forward(self, symbols: torch.Tensor) -> torch.Tensor:
            return self.e(symbols).flip(1)

    with pytest.raises(SettingsError, match="sees symbols that it has to predict"):
        an.LanguageModel(model=Peeking, steps=1).fit(["abc abd"] * 50)


def hits(truth: Any, answers: Any) -> float:
    return 1.0


@pytest.mark.parametrize("name", TASKS)
def test_A11_measures_of_ones_own_are_called_or_refused_by_every_task_and_preset(name: str) -> None:
    """`an.fit` took them and never called them."""
    task = TASKS[name]
    for preset, info in task.presets.items():
        given = {"model": preset, "metrics": {"hits": hits}}
        if info.direct or name == "language":
            with pytest.raises(SettingsError, match="metrics"):
                resolve(task, given)
        else:
            assert list(resolve(task, given).metrics) == ["hits"]  # type: ignore[attr-defined]
    if name != "language":  # what evaluates the others measures them by the one function for it
        home = importlib.import_module(task.home).__file__
        assert home is not None
        parts = [(Path(home).parent / f"{part}.py").read_text() for part in ("objective", "estimator")]
        assert any("own_measures(" in text for text in parts)


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ({"metrics": {"hits": hits}}, "metrics has no effect on fit: .*evaluate"),
        ({"batch_tokens": 100}, "batch_tokens has no effect on fit: batches are as large as"),
        ({"batch_invariant": True}, "batch_invariant has no effect on fit"),
    ],
)
def test_A11_fit_of_a_module_refuses_settings_that_it_would_ignore(setting: Any, told: str) -> None:
    x = torch.ones(4, 1)
    with pytest.raises(SettingsError, match=told) as error:
        an.fit(torch.nn.Linear(1, 1), torch.nn.MSELoss(), [(x, x)], steps=1, **setting)
    assert len(str(error.value)) <= 160
