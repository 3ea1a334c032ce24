"""One answer of a model, in the two forms that the command prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anaphora.data.asked import Asked, filled
from anaphora.tasks.bulk.windows import Item, item
from anaphora.tasks.outputs import Output


@dataclass(frozen=True)
class Response:
    """``text`` is what people read (one line or more, without the last line break), ``record`` the same as JSON."""

    text: str
    record: dict[str, Any]


def output_response(
    number: int, asked: Mapping[str, Any], outputs: Sequence[Output], *, many: bool
) -> Response:
    """The best output of input ``number`` on one line; of ``many`` a line ``number⇥score⇥text`` for each. ``asked`` is the
    input as the record has it."""
    # An output that holds line breaks must not shift the lines that follow.
    shown = [" ".join(output.text.splitlines()) for output in outputs]
    text = shown[0] if shown else ""
    if many:
        text = "\n".join(f"{number}\t{o.score:.4f}\t{line}" for o, line in zip(outputs, shown, strict=True))
    best = outputs[0].text if outputs else ""
    return Response(text, {"line": number, **asked, "output": best, "outputs": [vars(o) for o in outputs]})


def text_items(batches: Iterable[Sequence[Asked]], *, beside: bool = True) -> Iterator[list[Item]]:
    """Texts of a file as items; with ``beside`` their answers are written beside the rows they came from."""
    for batch in batches:
        yield [item(one.text, _beside(one) if beside else None) for one in batch]


def _beside(one: Asked) -> Callable[[Response], Response]:
    return lambda response: replace(response, text=one.with_answer(response.text))


def answers(asked: Sequence[tuple[int, str]], answer: Callable[[list[str]], Iterable[Any]]) -> list[Any]:
    """Return for each text what ``answer`` gives for the texts that are not blank, and None for one that is."""
    return filled([text for _, text in asked], answer)
