"""Own parts: how objects become text, and text becomes objects again."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from anaphora.errors import SettingsError
from anaphora.settings.base import Settings, build
from anaphora.settings.own import Own, OwnMany, OwnMetric, Part, name_of, parts_of, source_sha256


class Words(Settings):
    metrics: Annotated[dict[str, str], OwnMany(named=True)] = Field({})
    callbacks: Annotated[tuple[str, ...], OwnMany()] = Field(())
    cell: Annotated[Literal["lstm", "gru"], Own()] = Field("lstm")
    metric: Annotated[Literal["accuracy", "loss"], OwnMetric()] = Field("accuracy")


def double(x: int, by: int = 2) -> int:
    return x * by


class Counter:
    def __init__(self, start: int = 0):
        self.start = start


class Bare:
    pass


def test_objects_are_written_as_module_and_name() -> None:
    assert name_of(double) == f"{__name__}:double"
    assert name_of(partial(double, 3, by=[1, "a"])) == f"{__name__}:double(3, by=[1, 'a'])"
    assert name_of(partial(double, object())) == f"{__name__}:double(...)"
    assert name_of(Bare()) == f"{__name__}:Bare()"
    assert name_of(Counter(3)) == f"{__name__}:Counter(...)"
    assert name_of(lambda x: x).endswith("<lambda>")


def test_the_shortest_module_that_exports_an_object_names_it() -> None:
    import torch

    assert name_of(torch.optim.NAdam) == "torch.optim:NAdam"


def test_settings_keep_the_object_and_dump_its_name() -> None:
    words = Words(cell=partial(double, by=4), metrics={"twice": double}, metric="-twice", callbacks=[Bare()])  # type: ignore[arg-type]
    assert words.cell.object(2) == 8  # type: ignore[attr-defined]
    assert words.model_dump_json() == (
        f'{{"metrics":{{"twice":"{__name__}:double"}},"callbacks":["{__name__}:Bare()"],'
        f'"cell":"{__name__}:double(by=4)","metric":"-twice"}}'
    )
    assert set(parts_of(words)) == {"cell", "metrics.twice", "callbacks.0"}


def test_a_list_of_measures_is_named_by_its_functions() -> None:
    assert set(Words(metrics=[double]).metrics) == {"double"}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"cell": "lsmt"}, "Did you mean lstm?"),
        ({"cell": 3}, "it must be 'lstm' or 'gru'"),
        ({"metric": "twice"}, "it must be 'accuracy' or 'loss'"),
        ({"callbacks": "later"}, "write module:Name"),
        ({"callbacks": {"a": double}}, "it must be a list"),
    ],
)
def test_words_that_are_no_parts_are_refused_as_before(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match="cannot be used") as raised:
        build(Words, values, owner="Words")
    assert message in str(raised.value)


def test_text_is_imported_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_part.py").write_text("def triple(x, by=3):\n    return x * by\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    part = Words(cell="my_own_part:triple(by=5)").cell  # type: ignore[arg-type]
    assert isinstance(part, Part)
    assert not part.known
    assert part.bring().object(2) == 10
    assert part.sha256 == source_sha256(part.object)
    with pytest.raises(SettingsError, match=r"my_own_part.py has no nothing"):
        Part("my_own_part:nothing").bring()
    with pytest.raises(SettingsError, match="nothing is imported from a run folder"):
        Part("my_own_part:triple").bring(run=tmp_path)


def test_a_file_does_not_replace_an_installed_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SettingsError, match=r"rename json.py"):
        Part("json:loads").bring()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no_such_module_here:X", "there is no module no_such_module_here"),
        (f"{__name__}:<lambda>", "a function without a name"),
        (f"{__name__}:Counter(...)", "made with arguments of its own"),
        (f"{__name__}:double(by=open('x'))", "write the arguments as in"),
    ],
)
def test_text_that_cannot_be_imported_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(SettingsError, match="cell = ") as raised:
        Part(text).bring(where="cell = ")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_only_classes_of_our_cells_and_torchs_optimizers_are_harmless() -> None:
    assert Part("anaphora.nn:LSTM(peephole=True)").harmless
    assert Part("torch.optim:NAdam").harmless
    for text in (
        "os:system",
        "torch.optim.adam:torch.os.system",
        "torch.optim.adam:cast",
        "torch.optimizers:X",
    ):
        assert not Part(text).harmless, text


def test_the_hash_of_a_lambda_is_of_its_expression_alone() -> None:
    first = lambda x: x + 1  # noqa: E731
    same, other = lambda x: x + 1, lambda x: x + 2
    assert source_sha256(first) == source_sha256(same) != source_sha256(other)
    assert source_sha256(first) is not None
