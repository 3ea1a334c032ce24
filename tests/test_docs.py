"""Every code block of the README and of docs/ runs, top to bottom, in an empty folder per page.

``python`` blocks of a page share one namespace; ``bash`` blocks run with ``anaphora`` on the path; ``toml``,
``json`` and ``jsonl`` blocks must parse, and one that opens with ``# file: NAME`` is written to that file for the blocks below.
A ``text`` block right below a ``python`` block, with nothing in between, is what that block prints (`printed`); below a ``bash``
block it is a part of what that prints. ``…`` stands for anything.

In ``make test`` the pages call the command out of a process that has imported torch already (`warm_command`), and train on
short corpora; in ``make test-all`` every page calls the command as installed, and corpora are whole.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import anaphora as an
from anaphora.native.c import compiler
from printed import same_output
from sweeps import SHORT
from warm_command import commands_folder

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LESSONS = ROOT / "docs" / "learn"
"""tests/learn runs these, and compares what they print."""
SHOW_COMPILED = {"cells.md", "engine.md", "experiment.md"}
"""Pages that print or assert which compiled kernels run."""
WHOLE_CORPORA = {"forecast.md", "var.md", "vectors.md"}
"""Pages that show what a training on all of a corpus comes to; ``make test`` shortens the corpora for the others."""
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[int, str, str]]:
    text = page.read_text(encoding="utf-8")
    found: list[tuple[int, str, str]] = []
    end = -1
    for match in FENCE.finditer(text):
        below = not text[end : match.start()].strip() and end >= 0
        kind = "output" if match[1] == "text" and below and found[-1][1] in ("python", "bash") else match[1]
        found.append((text[: match.start()].count("\n") + 1, kind, match[2]))
        end = match.end()
    return found


def with_free_ports(code: str) -> str:
    """The ports of ``--port`` become ones that nothing else uses on this machine."""
    for port in set(re.findall(r"--port (\d+)", code)):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            code = re.sub(rf"\b{port}\b", str(free.getsockname()[1]), code)
    return code


def run_shell(code: str, folder: Path, first: Path | None, short: bool = False) -> str:
    """What it prints, results before messages. ``first``: a folder ahead of all others on the path; ``short``: with short corpora."""
    code = with_free_ports(code)
    path = os.pathsep.join(
        [*([str(first)] if first else []), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    env = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", SHORT: "1" if short else ""}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=1800,
    )
    assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    notes = [line for line in done.stderr.splitlines(keepends=True) if "there is no C compiler" not in line]
    return done.stdout + "".join(notes)


def run_make(code: str) -> None:
    """`make …` lines would run this very suite: check that the targets exist and stop there."""
    for line in code.splitlines():
        if line.startswith("make "):
            words = line.split("#")[0].split()
            done = subprocess.run([*words, "-n"], cwd=ROOT, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.parent != LESSONS or not p.name[0].isdigit()], ids=lambda p: p.name
)
def test_every_block_runs(
    page: Path, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of a page, in order."""
    if page.name in SHOW_COMPILED and compiler() is None:
        pytest.skip("the page shows compiled kernels, and there is no C compiler here")
    folder = tmp_path
    monkeypatch.chdir(folder)
    first = commands_folder()
    short = first is not None and page.name not in WHOLE_CORPORA
    if short:
        request.getfixturevalue("small_corpora")
    namespace: dict[str, object] = {"__name__": "__page__"}
    printed, whole = "", True
    for line, kind, code in blocks(page):
        if kind == "python":
            padded = "\n" * line + code  # so that a traceback names the page's own line
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                exec(compile(padded, str(page), "exec"), namespace)
            printed, whole = said.getvalue(), True
        elif kind == "output":
            assert same_output(code, printed, whole=whole), f"{page.name}:{line}: the code prints\n{printed}"
        elif kind in {"bash", "sh"}:
            if re.search(r"^(make|git clone) ", code, re.MULTILINE):
                run_make(code)
            else:
                printed, whole = run_shell(code, folder, first, short), False
        elif kind == "toml":
            tomllib.loads(code)
        elif kind == "json":
            json.loads(code)
        elif kind == "jsonl":
            assert all(json.loads(row) for row in code.splitlines())
        else:
            assert kind in {"text", "equation", "markdown", ""}, (
                f"{page.name}:{line}: what is a {kind!r} block?"
            )
        named = re.match(r"# file: (\S+)\n", code)
        if named:
            (folder / named[1]).write_text(code, encoding="utf-8")


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> list[tuple[Path, str]]:
    """Where the page points to inside the repository: files, and headings in them."""
    found = re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", prose(page))
    inside = [(target, heading) for target, heading in found if not re.match(r"[a-z]+:", target)]
    return [((page.parent / target).resolve() if target else page, heading) for target, heading in inside]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_table_has_a_head(page: Path) -> None:
    """An empty line inside a table ends it, and the rows below would be shown as text."""
    for table in re.findall(r"(?:^\|.*\n)+", prose(page), re.MULTILINE):
        assert re.match(r"\|.*\n\|[\s:|-]+\n", table), f"{page.name}: no head above {table[:60]}"


def headings(page: Path) -> set[str]:
    """The headings as links spell them: small letters, hyphens for blanks, no punctuation."""
    titles = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_inside_the_repository_lead_somewhere(page: Path) -> None:
    for target, heading in links(page):
        assert target.exists(), f"{page.name} points to {target.name}, which is not there"
        if heading:
            assert heading in headings(target), f"{page.name} points to #{heading}, which {target.name} lacks"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_benchmarks_have_the_options_that_the_pages_name(page: Path) -> None:
    for name, rest in re.findall(r"benchmarks/(\w+\.py)([^`\n]*)", page.read_text(encoding="utf-8")):
        script = ROOT / "benchmarks" / name
        assert script.is_file(), f"{page.name} names {name}, which is not there"
        for option in re.findall(r"(?<![\w-])--[\w-]+", rest):
            assert option in script.read_text(encoding="utf-8"), f"{page.name}: {name} has no {option}"


def test_benchmarks_of_make_bench_print_json() -> None:
    """`benchmarks/run.py` reads what they print with ``--json``."""
    (names,) = re.findall(
        r"^BENCHMARKS = \((.*?)^\)", (ROOT / "benchmarks" / "run.py").read_text(), re.M | re.S
    )
    for name in re.findall(r'"(\w+)"', names):
        assert "--json" in (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8"), name


def test_the_index_lists_every_page_by_its_title() -> None:
    """The site makes its menu of this list."""
    listed = dict(
        re.findall(
            r"^- \[(.+)\]\((.+?)\)", (ROOT / "docs" / "README.md").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    shelves = [page for page in PAGES if page.parent.parent == ROOT / "docs" and page.parent != LESSONS]
    titles = {page.read_text(encoding="utf-8").split("\n")[0].removeprefix("# "): page for page in shelves}
    titles["Lessons"] = LESSONS / "README.md"
    found = {title: ROOT / "docs" / path for title, path in listed.items()}
    assert found.items() <= titles.items()
    left_out = [page.name for page in titles.values() if page not in found.values()]
    assert [name for name in left_out if not name.startswith("results-")] == []  # results.md lists those


def test_every_page_is_reached_from_the_readme() -> None:
    found, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in found:
            found.add(page)
            ahead += [target for target, _ in links(page) if target in PAGES]
    assert {str(page.relative_to(ROOT)) for page in PAGES if page not in found} == set()


def test_the_page_of_corpora_lists_all_of_them_with_their_variants() -> None:
    from anaphora.data.corpora import CORPORA

    text = (ROOT / "docs" / "reference" / "corpora.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]*) \|", text, re.MULTILINE))
    for name, corpus in CORPORA.items():
        assert re.findall(r"`([\w-]+)`", rows.get(name, "")) == list(corpus.variants), name


def test_the_glossary_is_in_order() -> None:
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE)[2:]
    assert len(words) > 50
    assert words == sorted(words, key=str.lower)


def test_the_citation_names_the_newest_version() -> None:
    newest = re.findall(
        r"^## (\d+\.\d+\.\d+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert newest[0] == an.__version__
    assert f"\nversion: {newest[0]}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
