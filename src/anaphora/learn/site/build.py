"""Build the site: every page of the documentation as HTML, a menu, a search index, and the pictures.

Pages link to each other by relative addresses and load nothing from elsewhere, so the folder works from a disk, a server or an archive.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from anaphora.errors import AnaphoraError
from anaphora.files import is_folder, read_bytes
from anaphora.files.writing import (
    make_folder,
    make_inner_folder,
    remove,
    remove_if_empty,
    replace_file,
    replacing,
    writing,
)
from anaphora.learn.page import documentation, lesson, lessons
from anaphora.learn.pictures import drawn
from anaphora.learn.site.markdown import Rendered, render

_STATIC = Path(__file__).parent / "static"
_BESIDE = {
    "README.md": "index",
    "CONTRIBUTING.md": "contributing",
    "SECURITY.md": "security",
    "CHANGELOG.md": "changes",
}
"""Pages beside the folder of the documentation, in a checkout, and what they are called on the site."""
_LIST = ".anaphora-site"
_HEAD = "A site that `anaphora learn --site` wrote: it may replace these files."
_LONGEST_LIST = 1 << 22
_FRAMED = 500_000
"""Bytes: a picture whose page is larger is shown as an image, so that no page of the site loads a megabyte."""
_WORDS = 200
"""Pixels for the words below a picture, until its page reports how high it is."""
_SHELVES = {"learn": "Learn", "guides": "Guides", "reference": "Reference", "measured": "Measured"}


@dataclass(frozen=True)
class Source:
    """A page to be: its Markdown, the file that links in it are relative to, and its address on the site."""

    text: str
    path: Path
    address: str


def build(
    out: str | Path, *, pictures: str | Path | None = None, more: Mapping[str, str] | None = None
) -> list[Path]:
    """Write the site into the folder ``out``, which it replaces; the pages that were written.

    ``pictures``: a folder with a folder for each lesson, as `anaphora.learn.pictures.draw` makes it; a lesson shows those that its code as it is now has drawn there.
    ``more``: further pages of the reference, their names and their Markdown. An `AnaphoraError` where ``out`` holds something else than a site.
    """
    out = Path(out)
    _clear(out)
    with writing(out):
        replace_file(
            out / _LIST, f"{_HEAD}\n".encode()
        )  # so that a site that was stopped halfway can be replaced
    docs = documentation()
    sources = _sources(docs, more or {})
    site = _Site(docs, sources, out, Path(pictures) if pictures else None)
    for name in ("site.css", "site.js"):
        site.put(name, read_bytes(_STATIC / name).decode())
    found = [site.page(source) for source in sources]
    site.put(
        "search.js", "window.SEARCH = " + json.dumps(site.index, ensure_ascii=False, separators=(",", ":"))
    )
    site.finish()
    return found


def _clear(out: Path) -> None:
    """Remove the pages of an older site in ``out``, which its list names; refuse a folder that holds other things alone."""
    if is_folder(out) and not any(out.iterdir()):
        return
    if not os.path.lexists(out):
        with writing(out):
            make_folder(out)
        return
    try:
        head, *listed = read_bytes(out / _LIST, most=_LONGEST_LIST, follow=False).decode().splitlines()
    except (OSError, ValueError):
        head, listed = "", []
    if head != _HEAD or not is_folder(out):
        raise AnaphoraError(
            f"{out}: holds files that are no site; name a folder that is new or holds a site."
        )
    folders = set()
    for name in listed:
        way = Path(os.path.normpath(name))
        if way.is_absolute() or ".." in way.parts or not all(is_folder(out / up) for up in way.parents):
            continue
        if (out / way).is_symlink() or (out / way).is_file():
            remove(out / way)
        folders |= {up for up in way.parents if up.parts}
    for folder in sorted(folders, key=lambda one: -len(one.parts)):
        remove_if_empty(out / folder)


def _sources(docs: Path, more: Mapping[str, str]) -> list[Source]:
    from anaphora.learn.site.reference import pages

    found = []
    for path in sorted(docs.rglob("*.md")):
        place = path.relative_to(docs)
        name = "contents.html" if place == Path("README.md") else place.with_suffix(".html").as_posix()
        found.append(Source(read_bytes(path).decode(), path, name.replace("README.html", "index.html")))
    for file, name in _BESIDE.items():
        beside = docs.parent / file
        if beside.is_file() and docs.name == "docs":
            found.append(Source(read_bytes(beside).decode(), beside, f"{name}.html"))
    if not any(source.address == "index.html" for source in found):  # installed: no README beside
        contents = next(source for source in found if source.address == "contents.html")
        found.append(Source(contents.text, contents.path, "index.html"))
    for name, text in {**more, **pages()}.items():
        found.append(Source(text, docs / "reference" / f"{name}.md", f"reference/{name}.html"))
    return found


class _Site:
    """What the pages share: where each source leads, the menu, the index of the search."""

    def __init__(self, docs: Path, sources: list[Source], out: Path, pictures: Path | None) -> None:
        self.docs, self.out, self.pictures = docs.resolve(), out, pictures
        self.addresses = {
            source.path.resolve(): source.address for source in sources if source.address != "contents.html"
        }
        contents = (self.docs / "README.md").resolve()
        self.addresses[contents] = "contents.html"
        self.menu = _menu(self.docs, sources)
        self.index: list[list[str]] = []
        self.copied: set[str] = set()
        self.written: list[str] = []

    def put(self, address: str, text: str) -> Path:
        return self._write(address, text.encode())

    def _write(self, address: str, content: bytes) -> Path:
        path = self.out / address
        with writing(path):
            for folder in reversed(Path(address).parents[:-1]):
                make_inner_folder(self.out / folder)
            with replacing(path, synced=False) as file:
                file.write(content)
        self.written.append(address)
        return path

    def finish(self) -> None:
        """Write the list of what was written, by which the next site knows what it may remove."""
        names = "\n".join(sorted({*self.written, _LIST}))
        replace_file(self.out / _LIST, f"{_HEAD}\n{names}\n".encode())

    def page(self, source: Source) -> Path:
        done = render(_completed(source, self.menu), lambda target: self._resolve(source, target))
        body = done.body
        if source.path.parent.name == "learn" and source.path.name[0].isdigit():
            body = self._with_pictures(source, body)
        for section in done.sections:
            words = " ".join(section.words)[:1200]
            self.index.append([f"{source.address}#{section.anchor}", done.title, section.title, words])
        return self.put(source.address, self._html(source, done, body))

    def _resolve(self, source: Source, target: str) -> str | None:
        if re.match(r"[a-z]+:", target):
            return target
        name, _, heading = target.partition("#")
        if not name:
            return target
        path = (source.path.parent / name).resolve()
        address = self.addresses.get(path) or self.addresses.get(path / "README.md")
        if address is None and path.is_file() and path.is_relative_to(self.docs):
            address = self._copy(path)
        if address is None:
            return None
        return _relative(address, source.address) + (f"#{heading}" if heading else "")

    def _copy(self, path: Path) -> str:
        address = path.relative_to(self.docs).as_posix()
        if address not in self.copied:
            self.copied.add(address)
            self._write(address, read_bytes(path))
        return address

    def _with_pictures(self, source: Source, body: str) -> str:
        """Below each block that saves a picture, the picture that the lesson's code has drawn."""
        folder = self.pictures / source.path.stem if self.pictures else None
        if folder is None or not drawn(lesson(int(source.path.name[:2])), folder):
            return body

        def shown(match: re.Match[str]) -> str:
            code = html.unescape(re.sub(r"<[^>]+>", "", match[0]))
            found = [name for name in re.findall(r'"([\w-]+\.svg)"', code) if (folder / name).is_file()]
            return match[0] + "".join(self._figure(folder / name, source) for name in dict.fromkeys(found))

        return re.sub(r'<pre class="code python".*?</pre>\n', shown, body, flags=re.DOTALL)

    def _figure(self, path: Path, source: Source) -> str:
        """The picture as a page within the page, with values to point at; as an image where it has none or is too large."""
        address = f"learn/{source.path.stem}/{path.name}"
        content = read_bytes(path)
        self._write(address, content)
        drawing = content.decode()
        title = re.search(r"<title[^>]*>(.*?)</title>", drawing, re.DOTALL)
        says = html.escape(
            html.unescape(title[1]).strip() if title else f"Picture of {source.path.stem}", quote=True
        )
        live = path.with_suffix(".html")
        image = _relative(address, source.address)
        if not live.is_file():
            return f'<figure><img src="{image}" alt="{says}" loading="lazy"></figure>\n'
        self._write(address.removesuffix(".svg") + ".html", read_bytes(live))
        page = _relative(address.removesuffix(".svg") + ".html", source.address)
        if live.stat().st_size > _FRAMED:
            return (
                f'<figure><img src="{image}" alt="{says}" loading="lazy">'
                f'<figcaption><a href="{page}">Open with values, numbers and code</a></figcaption></figure>\n'
            )
        tall = re.search(r'<svg[^>]* height="([\d.]+)"', drawing)
        height = round(float(tall[1])) + _WORDS if tall else 480
        return (
            f'<figure><iframe src="{page}" title="{says}" height="{height}" loading="lazy"></iframe>'
            f'<figcaption><a href="{page}">Open alone</a> · <a href="{image}">SVG</a></figcaption></figure>\n'
        )

    def _html(self, source: Source, done: Rendered, body: str) -> str:
        up = _relative("", source.address)
        contents = [s for s in done.sections if s.level == 2]
        toc = "".join(f'<li><a href="#{s.anchor}">{html.escape(s.title)}</a></li>' for s in contents)
        here = (
            f'<nav class="toc" aria-label="On this page"><p>On this page</p><ul>{toc}</ul></nav>'
            if toc
            else ""
        )
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(done.title)} – Anaphora</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="{up}site.css">
<script src="{up}site.js" data-root="{up}"></script>
</head>
<body>
<a class="skip" href="#content">Skip to the text</a>
<header><button type="button" id="menu" aria-expanded="false" aria-controls="shelves">Menu</button><a class="home" href="{up}index.html">Anaphora</a>
<form role="search"><input type="search" id="search" placeholder="Search" aria-label="Search" autocomplete="off"></form>
<button type="button" id="theme">Dark</button></header>
<section id="results" aria-label="Search results" aria-live="polite" hidden></section>
<div class="columns">
<nav id="shelves" aria-label="Pages">{self._shelves(source.address)}</nav>
<main id="content">
{body}{self._next(source.address)}</main>
{here}</div>
</body>
</html>
"""

    def _shelves(self, address: str) -> str:
        parts = []
        for shelf, groups in self.menu:
            pages = [page for _, group in groups for page, _ in group]
            opened = " open" if address in pages else ""
            lists = "".join(
                (f"<p>{html.escape(name)}</p>" if name else "")
                + f"<ul>{''.join(_item(p, t, address) for p, t in group)}</ul>"
                for name, group in groups
            )
            parts.append(f"<details{opened}><summary>{shelf}</summary>{lists}</details>")
        return "".join(parts)

    def _next(self, address: str) -> str:
        for _, groups in self.menu:
            pages = [one for _, group in groups for one in group]
            places = [place for place, (page, _) in enumerate(pages) if page == address]
            if places:
                place = places[0]
                links = [
                    f'<a rel="{rel}" href="{_relative(pages[other][0], address)}">{sign} {html.escape(pages[other][1])}</a>'
                    for rel, other, sign in (("prev", place - 1, "←"), ("next", place + 1, "→"))
                    if 0 <= other < len(pages)
                ]
                return f'<nav class="turn" aria-label="Neighbours">{"".join(links)}</nav>\n'
        return ""


Menu = list[tuple[str, list[tuple[str, list[tuple[str, str]]]]]]
"""Shelf → group → pages: their address and their title."""


def _menu(docs: Path, sources: list[Source]) -> Menu:
    """As docs/README.md lists the pages; below the lessons every lesson, below the reference what is generated."""
    text = read_bytes(docs / "README.md").decode()
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    listed = dict(zip(parts[1::2], parts[2::2], strict=True))
    menu: Menu = []
    for folder, shelf in _SHELVES.items():
        groups: list[tuple[str, list[tuple[str, str]]]] = []
        for name, items in re.findall(
            r"(?:^\*\*(.+?)\*\*\n\n)?((?:^- .+\n?)+)", listed.get(shelf, ""), re.MULTILINE
        ):
            pages = re.findall(r"^- \[(.+?)\]\((.+?)\.md\)", items, re.MULTILINE)
            groups.append(
                (name, [(f"{page}.html".replace("README", "index"), title) for title, page in pages])
            )
        known = {page for _, group in groups for page, _ in group}
        if shelf == "Learn":
            groups.append(
                ("", [(f"learn/{one.name}.html", f"{one.number}. {one.title}") for one in lessons()])
            )
        more = [
            (source.address, source.text.split("\n")[0].removeprefix("# "))
            for source in sources
            if source.address.startswith(f"{folder}/") and source.address not in known and shelf != "Learn"
        ]
        if more:
            groups.append(("Generated" if shelf == "Reference" else "", more))
        menu.append((shelf, groups))
    return menu


def _completed(source: Source, menu: Menu) -> str:
    """The page of contents also lists what is generated."""
    if source.address != "contents.html":
        return source.text
    made = [
        group
        for shelf, groups in menu
        if shelf == "Reference"
        for name, group in groups
        if name == "Generated"
    ]
    lines = [f"- [{title}]({address.removesuffix('.html')}.md)" for group in made for address, title in group]
    return source.text.replace(
        "\n## Measured", "\n**Generated from the code**\n\n" + "\n".join(lines) + "\n\n## Measured"
    )


def _item(page: str, title: str, here: str) -> str:
    current = ' aria-current="page"' if page == here else ""
    return f'<li><a href="{_relative(page, here)}"{current}>{html.escape(title)}</a></li>'


def _relative(target: str, here: str) -> str:
    """The address of a page as another one links to it; of "" the way to the root, empty or ending in a slash."""
    start = os.path.dirname(here) or "."
    if not target:
        way = os.path.relpath(".", start)
        return "" if way == "." else f"{way}/"
    return os.path.relpath(target, start)
