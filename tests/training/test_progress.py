from __future__ import annotations

import errno
import io
import sys

import pytest
from training_toy import finish

from anaphora.training.progress import ConsoleReporter, Tick, duration, printable

FACTS = {
    "steps": 100,
    "from_step": 0,
    "parameters": 1234567,
    "device": "cpu",
    "precision": "fp32",
    "world": 1,
    "counts": "examples",
}
TICK = Tick(step=50, steps=100, loss=1.25, lr=0.1, tokens_per_second=12345.6, seconds_left=62.4)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def talk(stream):
    reporter = ConsoleReporter("bleu", stream=stream)
    reporter.started(FACTS)
    reporter.evaluated(
        40,
        {"bleu": 31.25, "loss": 1.5},
        best=True,
        samples=[{"source": "two dogs", "output": "evil \x1b[31m"}],
    )
    reporter.stepped(TICK)
    reporter.logged({"loss": 1.25}, TICK)
    reporter.warn("watch out")
    reporter.finished()
    return stream.getvalue()


def test_plain_lines_without_a_terminal():
    assert talk(io.StringIO()).splitlines() == [
        "1,234,567 parameters, 100 steps on cpu in fp32; the loss is a mean over examples",
        "step 40: bleu 31.25, dev loss 1.5 (best so far)",
        "  source    two dogs",
        "  output    evil ·[31m",
        "step 50/100  loss 1.2500  bleu 31.25  12,346 examples/s  1:02 left",
        "warning: watch out",
    ]


def test_the_line_of_a_second_run_has_no_measure_of_the_first():
    stream = io.StringIO()
    reporter = ConsoleReporter("bleu", stream=stream)
    reporter.evaluated(40, {"bleu": 31.25}, best=True, samples=[])
    reporter.started(FACTS)
    reporter.logged({"loss": 1.25}, TICK)
    assert stream.getvalue().splitlines()[-1] == "step 50/100  loss 1.2500  12,346 examples/s  1:02 left"


def test_a_moving_line_in_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    text = talk(Terminal())
    assert "loss 1.2500  bleu 31.25  12,346 examples/s  1:02 left" in text
    assert "\x1b[33m" in text  # yellow
    assert "\x1b[2K" in text  # the line is redrawn in place


def test_no_color_is_honoured(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    text = talk(Terminal())
    assert "\x1b[33m" not in text
    assert "\x1b[32m" not in text


def test_a_dumb_terminal_gets_plain_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b[2K" not in talk(Terminal())


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(errno.EIO, "gone")])
@pytest.mark.parametrize("base", [io.StringIO, Terminal])
def test_a_reader_that_went_away_does_not_end_the_run(tmp_path, monkeypatch, base, error):
    class Gone(base):
        def write(self, text):
            raise error

        def flush(self):
            raise error

    monkeypatch.setenv("TERM", "xterm")
    assert finish(tmp_path / "run", reporter=ConsoleReporter("accuracy", stream=Gone())).stopped == "finished"


def test_it_talks_on_stderr(capsys):
    reporter = ConsoleReporter("bleu")
    reporter.say("hello")
    assert capsys.readouterr() == ("", "hello\n")
    assert sys.stderr is not None


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (62.3, "1:02"), (3599.6, "1:00:00"), (7325, "2:02:05")]
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_printable():
    assert printable("a\tb\x07ü\u202e") == "a·b·ü·"
