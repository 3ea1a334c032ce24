"""``anaphora search``: the nearest of many inputs, by the vectors of an embedder."""

from __future__ import annotations

import click

from anaphora.cli.group import Order
from anaphora.cli.options import json_option, source_field_option, trust_option

EXAMPLES = """
anaphora search runs/questions questions.txt --text 'How do I learn to cook?'
anaphora search runs/questions faq.csv --queries asked.txt -k 3 --json
"""


@click.command("search", cls=Order, examples=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.argument("file", metavar="FILE")
@click.option("--text", "texts", multiple=True, metavar="TEXT", help="What to look for; repeatable.")
@click.option("--queries", metavar="FILE", help="A file of what to look for, one a line or row.")
@click.option(
    "-k", "count", type=click.IntRange(1), default=5, metavar="N", help="Neighbours of each; 5 by default."
)
@source_field_option
@json_option
@trust_option
def command(
    run: str,
    file: str,
    texts: tuple[str, ...],
    queries: str | None,
    count: int,
    source_field: str | None,
    as_json: bool,
) -> None:
    """Find the inputs of FILE that are nearest to TEXT, by the vectors of the embedder of RUN.

    Each neighbour is a line `cosine⇥text`, the nearest first, with an empty line between queries.
    """
    from anaphora.cli.answering.session import read_inputs
    from anaphora.cli.output import emit, result
    from anaphora.cli.predicting import embedder_of
    from anaphora.errors import DataError

    if not texts and queries is None:
        raise click.UsageError("give what to look for: --text TEXT, or --queries FILE.")
    model = embedder_of(run, [file, *([queries] if queries else [])])
    if texts and model._inputs() != "text":
        raise DataError(f"{run} embeds sequences of vectors; give them with --queries FILE.")
    asked = [*texts, *(read_inputs(model, queries, source_field) if queries else [])]
    if empty := [text for text in texts if not text.strip()]:
        raise DataError(f"--text {empty[0]!r} is empty; give what to look for.")
    documents = read_inputs(model, file, source_field)
    if not documents:
        raise DataError(f"{file} holds nothing to search; give at least one input.")
    for number, (query, found) in enumerate(zip(asked, model.search(asked, documents, k=count), strict=True)):
        if as_json:
            near = [{"line": one.index + 1, "similarity": one.similarity} for one in found]
            shown = [{"text": one.item} if isinstance(one.item, str) else {} for one in found]
            head = {"query": query} if isinstance(query, str) else {"query": number + 1}
            emit({**head, "found": [{**a, **b} for a, b in zip(near, shown, strict=True)]}, indent=None)
            continue
        result("\n".join([*([""] if number else []), *map(str, found)]))
