"""``anaphora inspect``: draw what a model does with a text."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import click

from anaphora.cli.group import Order
from anaphora.cli.options import json_option, trust_option
from anaphora.cli.pictures import picture_options

if TYPE_CHECKING:
    from anaphora.probe.trace import Trace
    from anaphora.views.picture import Picture
    from anaphora.views.view import View

EXAMPLES = """
anaphora inspect runs/demo --view alignment --text 'ninety-one thousand six'
anaphora inspect runs/demo --view alignment --text 'forty-two' --target 'zweiundvierzig' --html look.html
anaphora inspect runs/a runs/b --view curves --set x=symbols --svg curves.svg
anaphora inspect runs/captions --view captions --input scene.png
anaphora inspect runs/speech --view spectrogram --text '#3'
anaphora inspect runs/sales --view forecast --input sales.csv --png sales.png
anaphora inspect runs/book --view embeddings --svg symbols.svg
"""


@click.command("inspect", cls=Order, examples=EXAMPLES)
@click.argument("runs", metavar="RUN…", nargs=-1, required=True)
@click.option(
    "--view", metavar="VIEW", help="Which picture; by default one that suits the model and the input."
)
@click.option(
    "--text",
    metavar="TEXT",
    help="The input to look at; '#3': the run's third dev example, where that is a sound, a picture or vectors.",
)
@click.option(
    "--input",
    "file",
    metavar="FILE",
    help="A sound, a picture, or a table of series to look at; --text may ask about a picture.",
)
@click.option(
    "--list", "listed", is_flag=True, help="List the views that can be drawn of RUN, and why not the others."
)
@click.option("--target", metavar="TEXT", help="A given output, instead of the best one found.")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="An option of the view; may be repeated."
)
@picture_options
@json_option
@trust_option
def command(
    runs: tuple[str, ...],
    view: str | None,
    text: str | None,
    file: str | None,
    target: str | None,
    listed: bool,
    assignments: tuple[str, ...],
    as_json: bool,
    **named: str | None,
) -> None:
    """Draw what the model of RUN does with TEXT, or how its training went: in the terminal, or into files.

    \b
    How the training of one or several runs went, also while they train:
      curves, samples, health
      change              the weights before and after
    The whole model:
      embeddings          which symbols, or which inputs, are alike to it
    Many dev examples:
      errors, data, units, texts
    One input on its way through the model:
      alignment           how much attention each output pays to each input
      states, gates, trajectory
                          what recurrent layers hold over time
      gradients, connectivity, jacobians
                          how far back, and from where, the loss reaches
      attribution         what the answer rests on
      lens                what each layer would answer
      heads, positions    of a Transformer
      spectrum, weights   of a linear recurrence
      beam, sampling      what a search kept, what a draw chose from
      ctc, prefixes, crf, hmm, kalman
                          in models of these kinds
      forecast            the end of a series and what follows
      spectrogram, captions, glimpses
                          of sounds and pictures

    `gradients` and `alignment` draw several runs in one picture. `--list` names the views that RUN has. Without --view, an input is shown by the view that says most about the model, and a run
    without an input by its curves.
    """
    from pathlib import Path

    from anaphora.cli.output import say
    from anaphora.cli.pictures import check_files, draw, write_files
    from anaphora.errors import SettingsError
    from anaphora.settings.files import read_assignments
    from anaphora.tasks.recipe import Recipe

    files = {kind: name for kind, name in named.items() if name is not None}
    check_files(files)
    options = read_assignments(assignments)
    if options.problems:
        raise SettingsError(options.problems)
    for run in runs:
        Recipe.read(Path(run))
    if listed:
        _list(runs, (text, file), as_json)
        return
    if view is None:
        view = _suitable(runs, (text, file), target)
    picture, traces = _drawn(runs, view, (text, file), target, options.values)
    write_files(picture, files)
    if as_json:
        said = {"view": view, "text": text} | ({} if file is None else {"input": file}) | {"files": files}
        _print_numbers(traces, said)
    elif files:
        say(f"Wrote {', '.join(files.values())}.")
    else:
        draw(picture)


def _drawn(
    runs: tuple[str, ...],
    name: str,
    given: tuple[str | None, str | None],
    target: str | None,
    options: dict[str, Any],
) -> tuple[Picture, dict[str, Trace]]:
    """The picture, and the trace of each run in it; views of several runs together have one trace, under the first."""
    from anaphora.views.registry import picture, picture_together, view

    found = view(name)
    if len(runs) > 1 and found.of == "probe" and found.together is not None:
        traces = {run: _probe((run,), found, given, target) for run in runs}
        return picture_together(traces, name, **options), traces
    trace = _trace(runs, found, given, target)
    return picture(trace, name, **options), {runs[0]: trace}


def _print_numbers(traces: dict[str, Trace], said: dict[str, Any]) -> None:
    """What was drawn, as JSON: an object for each trace, with what was ``said`` of it."""
    from anaphora.cli.output import emit

    shown = []
    for run, trace in traces.items():
        arrays = {name: {"axes": a.axes, "values": a.values.tolist()} for name, a in trace.arrays.items()}
        found = {"tokens": trace.tokens, "arrays": arrays, "facts": trace.facts, "tables": trace.tables}
        shown.append({"run": run, **said, **found})
    emit(shown[0] if len(shown) == 1 else shown, indent=None)


def _suitable(runs: tuple[str, ...], given: tuple[str | None, str | None], target: str | None) -> str:
    """The first view that can be drawn of one input, and without one the curves; says which."""
    from anaphora.cli.output import say
    from anaphora.errors import AnaphoraError, DataError
    from anaphora.views.registry import FIRST, VIEWS

    trace = (
        _history(runs, None, "history")
        if given == (None, None)
        else _probe(runs, VIEWS["states"], given, target)
    )
    first = ("curves",) if given == (None, None) else FIRST
    found = next((name for name in first if VIEWS[name].missing(trace) is None), None)
    if found is None:  # of a model without states, such as a table of n-grams
        with contextlib.suppress(AnaphoraError):
            trace = _probe(runs, VIEWS["attribution"], given, target)
            found = "attribution" if VIEWS["attribution"].missing(trace) is None else None
    if found is None:
        raise DataError(
            f"{runs[0]}: no view shows this model at work on one input; --view curves shows its training."
        )
    others = [
        name
        for name, view in VIEWS.items()
        if name != found
        and not view.missing(trace)
        and (view.of != "history" or any(trace.tables[need] for need in view.needs))
    ]
    another = f"--view NAME chooses another: {', '.join(others)}; " if others else ""
    say(f"Showing {found}; {another}--list names all that this run has.")
    return found


def _list(runs: tuple[str, ...], given: tuple[str | None, str | None], as_json: bool) -> None:
    """Every view with what it shows, or with the reason why it cannot be drawn of this model."""
    from anaphora.cli.output import emit, result, table
    from anaphora.errors import AnaphoraError
    from anaphora.tasks.gathered import why_not
    from anaphora.tasks.looking import Asked
    from anaphora.views.registry import VIEWS

    model = _model(runs, VIEWS["states"])
    asked = Asked(model, runs[0])
    needed = tuple(dict.fromkeys(one for view in VIEWS.values() if view.of == "probe" for one in view.what))
    traces: dict[str, Trace | str] = {}
    for kind in ("history", "film", "vectors", "probe"):
        try:
            traces[kind] = _trace_for(kind, asked, runs, given, needed)
        except AnaphoraError as error:
            traces[kind] = str(error)
    reasons: dict[str, str | None] = {}
    for name, view in VIEWS.items():
        if view.of == "dev":
            reasons[name] = why_not(asked, view.what[0])
            continue
        trace = traces.get(view.of, f"`anaphora study {name}` draws it")
        reasons[name] = trace if isinstance(trace, str) else view.missing(trace)
    if as_json:
        emit({"run": runs[0], "views": reasons})
        return
    can = [(name, VIEWS[name].title) for name, reason in reasons.items() if reason is None]
    result(table(can))
    result("Not of this model:")
    result(table([(name, reason) for name, reason in reasons.items() if reason is not None]))


def _trace_for(
    kind: str, asked: Any, runs: tuple[str, ...], given: tuple[str | None, str | None], what: tuple[str, ...]
) -> Trace:
    """A trace of the kind that views need: of the input that was given, or of the run's first dev example."""
    from anaphora.errors import AnaphoraError
    from anaphora.tasks.looking import SLOW, beginning

    if kind in ("history", "film"):
        return _history(runs, None, kind)
    if kind == "vectors":
        return asked.vectors()  # type: ignore[no-any-return]
    text, file = given
    x = asked.find(text or "", file)[0] if text or file else asked.first()
    trace: Trace = asked.model.probe(x)
    for one in what:  # what one model lets itself be asked, another refuses
        with contextlib.suppress(AnaphoraError):
            more: Trace = asked.model.probe(beginning(x) if one in SLOW else x, what=(one,))
            trace.arrays.update(more.arrays)
            trace.tables.update(more.tables)
    trace.facts["asked"] = list(what)
    return trace


def _trace(
    runs: tuple[str, ...], view: View, given: tuple[str | None, str | None], target: str | None
) -> Trace:
    """What the view shows: the course of runs, many vectors, or one input on its way through the model."""
    from anaphora.errors import DataError

    text, file = given
    if view.of in ("history", "film"):
        return _history(runs, text or file, view.of)
    if view.of == "probe":
        return _probe(runs, view, given, target)
    if view.of == "dev":
        return _gathered(runs, view, given)
    if view.of != "vectors":
        raise DataError(
            f"the view {view.name} is of many results; `anaphora study {view.name}` makes them and draws it."
        )
    if text is not None:
        raise DataError(
            f"the view {view.name} shows many vectors and takes no --text; name a file with --input."
        )
    return _vectors(runs, view, file)


def _history(runs: tuple[str, ...], text: str | None, kind: str) -> Trace:
    from anaphora.errors import DataError
    from anaphora.probe.film import film
    from anaphora.probe.history import history

    if text is not None:
        raise DataError("this view shows the course of training and takes no --text and no --input.")
    return history(*runs) if kind == "history" else film(*runs)


def _gathered(runs: tuple[str, ...], view: View, given: tuple[str | None, str | None]) -> Trace:
    """What many dev examples of the run show; texts of the user's, one a line, where the view takes them."""
    from anaphora.errors import DataError
    from anaphora.tasks.gathered import gather
    from anaphora.tasks.looking import Asked

    text, file = given
    if not view.lines and (text or file) is not None:
        raise DataError(
            f"the view {view.name} is of the run's dev examples and takes no --text and no --input."
        )
    lines = (text or "").splitlines()
    if file is not None:
        from anaphora.files import read_bytes

        try:
            lines += read_bytes(file, most=1 << 20).decode().splitlines()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise DataError(
                f"--input {file} cannot be read ({reason}); give a file with a text a line."
            ) from None
    return gather(Asked(_model(runs, view), runs[0]), view.what[0], lines)


def _vectors(runs: tuple[str, ...], view: View, file: str | None) -> Trace:
    from anaphora.tasks.looking import Asked

    model = _model(runs, view)
    inputs = None
    if file is not None and model.embeds_inputs:
        from anaphora.cli.answering.session import read_inputs

        inputs = read_inputs(model, file, None)
    return Asked(model, runs[0]).vectors([] if file is not None and inputs is None else inputs)


def _model(runs: tuple[str, ...], view: View) -> Any:
    from anaphora.errors import DataError
    from anaphora.tasks.load import load

    if len(runs) > 1:
        raise DataError(f"the view {view.name} looks into one model; name one RUN, not {len(runs)}.")
    return load(runs[0])


def _probe(
    runs: tuple[str, ...], view: View, given: tuple[str | None, str | None], target: str | None
) -> Trace:
    from anaphora.errors import DataError

    text, file = given
    if text is None and file is None:
        raise DataError(
            f"the view {view.name} looks at one input; give it with --text, or a file with --input."
        )
    if text is not None and not text.strip():
        raise DataError("--text is empty; give the input to look at.")
    from anaphora.tasks.looking import Asked

    model = _model(runs, view)
    x, facts = Asked(model, runs[0]).find(text or "", file)
    more: dict[str, Any] = {} if target is None else {"target": target}
    if view.what:
        more["what"] = view.what
    trace: Trace = model.probe(x, **more)
    trace.facts |= facts
    return trace
