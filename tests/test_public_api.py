"""What users may rely on: every promised name is there, and each says what it computes and of which shapes."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from torch import nn

import anaphora as an
from anaphora.cli.catalog import COMMANDS
from anaphora.learn.site import reference
from anaphora.tasks.registry import TASKS
from anaphora.views.registry import VIEWS

PRESETS = {
    "Classifier": "bow conv rnn lstm gru bilstm transformer",
    "Tagger": "hmm bilstm bilstm-crf transformer",
    "LanguageModel": "ngram nplm rnn lstm gru transformer",
    "Translator": "rnn lstm lstm-attention gru-attention transformer",
    "Transcriber": "bilstm-ctc conv-ctc transformer-ctc attention",
    "Captioner": "lstm lstm-attention lstm-hard transformer",
    "Answerer": "lstm-attention transformer",
    "Embedder": "bow bilstm transformer",
    "Forecaster": "var kalman rnn lstm gru conv transformer",
}
CLASSICAL = "HMM Kalman VAR NGram Word2Vec GloVe"
BLOCKS = (
    "Cell Elman LSTM GRU SimpleGRU Recurrent Affine Highway CRF TransformerEncoder TransformerDecoder "
    "attention.Dot attention.Bilinear attention.Additive attention.ScaledDot attention.MultiHead "
    "positions.Sinusoidal positions.Learned positions.Rotary positions.Alibi"
)
SEARCH = "beam sample greedy ctc_beam ctc_greedy ctc_align ctc_loss Hypothesis"
VIEW_NAMES = "curves samples health states gates gradients alignment heads positions beam sampling ctc embeddings hmm kalman length"
COMMAND_NAMES = "demo train resume predict search cluster score compare export sample inspect study studio corpora models explain doctor verify"
SETTINGS = (
    "model cell layers hidden embedding heads attention bidirectional dropout tokens vocab_size steps batch_tokens "
    "optimizer lr schedule warmup clip label_smoothing teacher_forcing valid_every save_every keep patience precision "
    "device seed beam length_penalty temperature top_k top_p"
)
CONVENTIONS = {"reset_parameters", "extra_repr"}
"""Methods whose meaning PyTorch fixes; how weights begin is said at the class."""


def found(place: Any, path: str) -> Any:
    for name in path.split("."):
        place = getattr(place, name)
    return place


def public() -> Iterator[tuple[str, Any]]:
    """Every class and function that has a place in the reference, with its name, once."""
    seen = set()
    for room in reference.ROOMS:
        for name, value in reference.public(room):
            if id(value) not in seen:
                seen.add(id(value))
                yield f"{room}.{name}", value


PUBLIC = list(public())


def documented(value: Any) -> str:
    """The docstring, and those of the classes of ours that it is made of: cells share ``inputs`` and ``hidden``."""
    bases = value.__mro__ if inspect.isclass(value) else ()
    ours = [base for base in bases if base.__module__.startswith("anaphora")]
    return "\n".join(one.__doc__ or "" for one in (value, *ours))


def test_the_names_are_there() -> None:
    for task, presets in PRESETS.items():
        assert set(presets.split()) <= set(getattr(an, task).task().presets), task
        for method in ("fit", "predict", "score", "probe", "save", "get_params", "set_params"):
            assert callable(getattr(getattr(an, task), method)), f"{task}.{method}"
    for place, names in ((an, CLASSICAL), (an.nn, BLOCKS), (an.search, SEARCH)):
        assert all(found(place, name) for name in names.split())
    assert set(COMMAND_NAMES.split()) <= set(COMMANDS)
    assert set(VIEW_NAMES.split()) <= set(VIEWS)
    settings = set().union(*(task.settings.model_fields for task in TASKS.values()))
    assert set(SETTINGS.split()) <= settings


def test_every_listed_name_can_be_had_and_is_listed() -> None:
    for name in an.__all__:
        assert getattr(an, name) is not None
    assert {*an._HOMES, *an._ROOMS, "__version__"} == set(an.__all__) == set(dir(an))
    with pytest.raises(AttributeError, match="no attribute 'Trnslator'"):
        _ = an.Trnslator


@pytest.mark.parametrize(("name", "value"), PUBLIC, ids=lambda value: value if isinstance(value, str) else "")
def test_every_public_name_says_what_it_is(name: str, value: Any) -> None:
    assert value.__doc__, f"{name} has no docstring"
    if not inspect.isclass(value):
        return
    for key, member in vars(value).items():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if key.startswith("_") or key in CONVENTIONS or not inspect.isfunction(function):
            continue
        told = function.__doc__ or any(
            getattr(getattr(base, key, None), "__doc__", "") for base in value.__mro__[1:]
        )
        assert told or key == "forward", f"{name}.{key} has no docstring"


@pytest.mark.parametrize(("name", "value"), PUBLIC, ids=lambda value: value if isinstance(value, str) else "")
def test_every_public_name_has_its_arguments_and_an_example(name: str, value: Any) -> None:
    """``tests/test_doctests.py`` runs the examples. An exception is raised by others, so it needs none."""
    if inspect.isclass(value) and issubclass(value, Exception):
        return
    own = value.__doc__ or ""
    assert ">>> " in own, f"{name} has no example"
    assert "+SKIP" not in own, f"{name} has an example that is not run"
    text = documented(value)
    made = value.__init__ if inspect.isclass(value) else value
    ours = getattr(made, "__module__", "").startswith("anaphora")  # not what a class has from torch or typing
    missing = [
        argument
        for argument in (inspect.signature(value).parameters if ours else ())
        if not re.search(rf"\b{re.escape(argument)}\b", text)
    ]
    assert not missing, f"{name}: the docstring does not say what {', '.join(missing)} is"


@pytest.mark.parametrize(
    ("name", "value"),
    [(n, v) for n, v in PUBLIC if inspect.isclass(v) and issubclass(v, nn.Module)],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_block_says_its_shapes(name: str, value: type[nn.Module]) -> None:
    documented = [
        value.__doc__,
        *(vars(base).get("forward") and vars(base)["forward"].__doc__ for base in value.__mro__[:-2]),
    ]
    told = " ".join(filter(None, documented))
    assert "``(" in told or issubclass(value, an.nn.Cell), f"{name} does not say which shapes it takes"


def test_every_setting_is_explained() -> None:
    for task in TASKS.values():
        for settings in filter(None, (task.settings, task.predicting, task.scoring)):
            for key, field in settings.model_fields.items():
                assert field.description, f"{task.name}: {key}"


def test_no_task_waits_for_the_compiler_of_torch() -> None:
    """It takes seconds to import, and nothing needs it until something is compiled."""
    homes = [task.home for task in TASKS.values()]
    code = f"import importlib, sys; [importlib.import_module(home) for home in {homes!r}]; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
