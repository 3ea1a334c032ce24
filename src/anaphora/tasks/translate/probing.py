"""A look into a translator while it turns one sequence into another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anaphora.probe.seq2seq import probe_seq2seq
from anaphora.probe.trace import Trace
from anaphora.tasks.looking import facts_of
from anaphora.tasks.outputs import beam_settings
from anaphora.tasks.translate.inference import search_outputs

if TYPE_CHECKING:
    from anaphora.tasks.translate.estimator import Translator


def probe_translator(
    m: Translator,
    text: str,
    source: Sequence[int],
    target: str | None,
    *,
    beam: int | None,
    what: Sequence[str] = (),
) -> Trace:
    """What happens while the symbols ``source`` of ``text`` become the best output of a beam, or the ``target`` given."""
    nbest = None
    if target is None:
        around = m.tokenizer_.around
        settings = beam_settings(m.settings_, beam)
        (nbest,) = search_outputs(m.model_, [source], keep_tree=True, around=around, **settings)
        symbols = nbest[0].tokens
    else:
        (symbols,) = m.tokenizer_.targets([target])
    spell = m.tokenizer_.target.pieces
    return probe_seq2seq(
        m.model_,
        source,
        m.tokenizer_.source.pieces(source),
        symbols,
        spell(symbols),
        nbest=nbest,
        pieces=spell,
        facts=facts_of(m, text) | {"output_text": m.tokenizer_.target.decode(symbols)},
        what=what,
        start=m.tokenizer_.around.start,
    )
