"""``anaphora listen``: words while the sound is still arriving."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from anaphora.cli.group import Order
from anaphora.cli.options import checkpoint_option, json_option, trust_option

EXAMPLES = """
anaphora listen runs/speech talk.wav
anaphora listen runs/speech talk.wav --real-time --beam 1
arecord -f S16_LE -r 16000 | anaphora listen runs/speech -
ffmpeg -i film.mkv -f s16le -ac 1 -ar 16000 - | anaphora listen runs/speech - --json
anaphora listen runs/speech --microphone --set lexicon=train
"""


@click.command("listen", cls=Order, examples=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option("--microphone", is_flag=True, help="Listen to the default microphone (package sounddevice).")
@click.option("--real-time", is_flag=True, help="Read FILE no faster than it would be spoken.")
@click.option(
    "--rate", type=click.IntRange(1000, 384_000), default=16_000, show_default=True, metavar="HZ",
    help="Samples per second of raw sound and of the microphone; a WAV head says its own.",
)  # fmt: skip
@click.option(
    "--format", "kind", type=click.Choice(["s16", "s32", "f32", "u8"]), default="s16", show_default=True,
    help="What a raw sample is.",
)  # fmt: skip
@click.option(
    "--endpoint", type=click.FloatRange(0, 10), default=0.8, show_default=True, metavar="SECONDS",
    help="Silence that ends an utterance; 0: all is one, as predict reads it.",
)  # fmt: skip
@click.option(
    "--every", type=click.FloatRange(0, 10), default=0.0, metavar="SECONDS",
    help="New sound after which words are written; by default 0.5, or 1 where a window is heard again.",
)  # fmt: skip
@click.option("--beam", type=int, metavar="N", help="Hypotheses kept at each step; 1 is greedy.")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any option of predicting; repeatable."
)
@checkpoint_option
@json_option
@trust_option
def command(
    run: str,
    file: str,
    microphone: bool,
    real_time: bool,
    rate: int,
    kind: str,
    endpoint: float,
    every: float,
    beam: int | None,
    assignments: tuple[str, ...],
    checkpoint: int | None,
    as_json: bool,
) -> None:
    """Write down what is said while it is still being said.

    RUN is a Transcriber of sound. FILE is a sound file, or - for standard input: a WAV stream, or raw samples of one channel. Each utterance
    becomes a line as soon as it is over; on a terminal the words of the current one are shown, and change until they are certain. At the end
    standard error has the latency and the real-time factor. With --json each update is a line of JSON.

    The presets lstm-ctc, conformer-ctc and transducer hear sound as it arrives. Every other model hears the last 30 seconds again and again.
    """
    from anaphora.cli.predicting import model_of, read_options
    from anaphora.data.asked import check_readable
    from anaphora.tasks.recipe import Recipe

    recipe = Recipe.read(Path(run))
    if recipe.task.command != "transcribe":
        raise click.UsageError(f"{run} is a {recipe.task.name}; listen needs a Transcriber of sound.")
    if microphone and (file != "-" or real_time):
        raise click.UsageError("--microphone listens to no file; leave FILE and --real-time out.")
    if real_time and file == "-":
        raise click.UsageError("--real-time is about a FILE; standard input comes at its own pace.")
    if not microphone and file == "-" and sys.stdin.isatty():
        raise click.UsageError("there is no sound: give a FILE, --microphone, or pipe sound into it.")
    options = read_options(recipe.task, {"beam": beam}, assignments)
    if Path(file).is_dir():
        raise click.UsageError(f"{file} is a folder; give one sound file.")
    if file != "-":
        check_readable(file)

    from anaphora.cli.listening import listen  # which loads torch
    from anaphora.data.audio import live

    model = model_of(run, options, checkpoint)
    if microphone:
        sound = live.of_microphone(rate)
    elif file == "-":
        sound = live.of_stream(sys.stdin.buffer, rate=rate, kind=kind)
    else:
        sound = live.of_file(file, real_time=real_time)
    listen(model, sound, options, endpoint=endpoint, every=every, as_json=as_json)
