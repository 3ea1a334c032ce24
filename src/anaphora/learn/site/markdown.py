"""Markdown → HTML: headings that can be linked to, equations as MathML, code in colours, links that lead to pages of the site."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token

from anaphora.learn.site import equations

Resolve = Callable[[str], str | None]
"""Where a link or a picture of the page leads on the site; None where the site does not have it."""
_FORMULA = re.compile(r"(?<![\w/.`])[A-Za-zα-ωΑ-Ω][\u0300-\u036f]*(?:[_^](?:\{[^{}]+\}|\w+))+(?![\w(])")
"""A name with something below or above it, such as h_{t−1}, within a sentence."""


@dataclass
class Section:
    """A heading and the words below it, for the search."""

    anchor: str
    title: str
    level: int
    words: list[str] = field(default_factory=list)


@dataclass
class Rendered:
    """A page as HTML, with its title and its sections."""

    title: str
    body: str
    sections: list[Section]


def anchor(title: str) -> str:
    """As the links in the pages spell a heading: small letters, hyphens for blanks, no punctuation."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def render(source: str, resolve: Resolve) -> Rendered:
    """``resolve`` maps the target of every link and picture."""
    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(source)
    sections: list[Section] = []
    used: set[str] = set()
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            title = _plain(tokens[place + 1])
            name = anchor(title)
            while name in used:
                name += "-2"
            used.add(name)
            token.attrSet("id", name)
            sections.append(Section(name, title, int(token.tag[1])))
        elif token.type == "inline" and sections and tokens[place - 1].type != "heading_open":
            sections[-1].words.append(_plain(token))
        if token.type == "inline":
            token.children = _inline(token.children or [], resolve)
    reader.add_render_rule("fence", _fence)
    reader.add_render_rule("code_block", _fence)
    reader.add_render_rule(
        "table_open", lambda *_: '<div class="table" tabindex="0" role="group" aria-label="Table"><table>\n'
    )
    reader.add_render_rule("table_close", lambda *_: "</table></div>\n")
    reader.add_render_rule("text", _text)
    body = reader.renderer.render(tokens, reader.options, {})
    body = body.replace("<th></th>", "<td></td>")  # the corner of a table is no heading
    return Rendered(sections[0].title if sections else "", body, sections)


def _plain(token: Token) -> str:
    return "".join(
        child.content if child.type in ("text", "code_inline") else " " if child.type == "softbreak" else ""
        for child in token.children or []
    )


def _inline(children: list[Token], resolve: Resolve) -> list[Token]:
    """Links with the addresses of the site; a link to what the site does not have loses its address."""
    kept: list[Token] = []
    dropped = 0
    for child in children:
        if child.type == "link_open":
            target = resolve(str(child.attrGet("href")))
            if target is None:
                dropped += 1
                continue
            child.attrSet("href", target)
        elif child.type == "link_close" and dropped:
            dropped -= 1
            continue
        elif child.type == "image":
            child.attrSet("src", resolve(str(child.attrGet("src"))) or "")
            child.attrSet("loading", "lazy")
        kept.append(child)
    return kept


def _text(renderer: Any, tokens: list[Token], place: int, options: Any, env: Any) -> str:
    """Ordinary text, with formulas such as h_{t−1} set as formulas."""
    text, parts, last = tokens[place].content, [], 0
    for match in _FORMULA.finditer(text):
        parts += [html.escape(text[last : match.start()], quote=False), equations.inline(match[0])]
        last = match.end()
    return "".join([*parts, html.escape(text[last:], quote=False)])


def _fence(renderer: Any, tokens: list[Token], place: int, options: Any, env: Any) -> str:
    token = tokens[place]
    kind = token.info.strip()
    if kind == "equation":
        return equations.equation(token.content)
    code = html.escape(token.content, quote=False) if kind in ("text", "") else _coloured(token.content, kind)
    label = "Output" if kind == "text" else "Code"
    return f'<pre class="code {kind or "text"}" tabindex="0" role="group" aria-label="{label}"><code>{code}</code></pre>\n'


def _coloured(code: str, kind: str) -> str:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import get_lexer_by_name
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name({"jsonl": "json"}.get(kind, kind), stripnl=False)
    except ClassNotFound:
        return html.escape(code, quote=False)
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True)))
