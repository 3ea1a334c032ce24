"""``learnt.json`` of a tagger: its tags, what they mark, its characters (or an HMM's words, or the scale of its frames), and
the columns it read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from anaphora.data.contexts import Context
from anaphora.data.sources.conll import form_of
from anaphora.data.tag_schemes import infer_scheme, misfit
from anaphora.errors import DataError, RunError
from anaphora.files import parse_json
from anaphora.files.schemas import checked

FORMAT = 1


@dataclass(frozen=True)
class Origin:
    """How the training data were laid out, so that predictions can be written in the same way."""

    kind: str = "conll"
    columns: int = 2
    source_field: str = "first"
    target_field: str = "last"

    @classmethod
    def of(cls, description: Mapping[str, Any]) -> Origin:
        """The layout of data that describe themselves so; that of two columns for what has none."""
        facts = description.get("of", description)
        if facts["kind"] not in ("conll", "conllu"):
            return cls()
        return cls(**{key: facts[key] for key in ("kind", "columns", "source_field", "target_field")})

    def fields(
        self, kind: str, source_field: str | int | None, target_field: str | int | None
    ) -> dict[str, str | None]:
        """The columns to read of data of a ``kind``: those that are named, else those of training if that was alike."""
        usual = (self.source_field, self.target_field) if kind == self.kind else (None, None)
        asked = [
            str(field) if field else usually
            for field, usually in zip((source_field, target_field), usual, strict=True)
        ]
        return {"source_field": asked[0], "target_field": asked[1]}


@dataclass(frozen=True)
class Learnt:
    """``scheme`` is ``none`` where tags mark no spans; ``letters`` are a network's, ``words`` an HMM's."""

    tags: tuple[str, ...]
    scheme: str
    origin: Origin
    letters: str | None = None
    words: tuple[str, ...] = ()
    context: tuple[Context, ...] = ()
    """The language models that give vectors in context."""
    frames: dict[str, Any] | None = None
    """What a `FrameReader` writes, where frames are tagged instead of words."""
    framing: Literal["", "begin", "both"] = ""
    """Where words are read in pieces: what stands round those of a sentence, <s> alone or <s> and </s>."""

    @property
    def spans(self) -> bool:
        return self.scheme != "none"

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str, path: Path) -> Learnt:
        try:
            given = parse_json(text)
            if given["format"] != FORMAT:
                raise RunError(
                    f"{path} has format {given['format']!r}, but this version reads {FORMAT}; upgrade Anaphora."
                )
            return checked(cls, {name: value for name, value in given.items() if name != "format"})
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise RunError(f"{path} is damaged ({error}); restore it from a copy of the run.") from None


def choose_scheme(asked: str, sequences: list[list[str]]) -> str:
    """The scheme of the training tags: as asked, if they can be read so, or found out."""
    tags = sorted({tag for sequence in sequences for tag in sequence})
    if len(tags) < 2:
        raise DataError(
            f"all training words have the tag {tags[0]}; there must be at least two tags to learn."
        )
    if asked == "auto":
        return infer_scheme(sequences)
    if odd := misfit(asked, tags):
        raise DataError(
            f"scheme = {asked}, but the training data have the tag {odd}; set scheme = auto or none."
        )
    return asked


def form_of_data(data: Any) -> str:
    """What columns of ``data`` mean: ``conllu`` or ``conll``; ``""`` where it is no file of columns."""
    from anaphora.data.corpora import CORPORA

    if not isinstance(data, str | Path) or str(data).partition(":")[0] in CORPORA:
        return ""
    form = form_of(data)
    return form if form in ("conll", "conllu") else ""
