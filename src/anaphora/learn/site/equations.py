"""Equations as they stand in the pages, in Unicode, become MathML, which browsers set without a script.

    h_t = tanh(W_hh h_{t−1} + b)        h_0 = 0

``_`` and ``^`` take a name, a number or what stands in braces; ``^(…)`` keeps its brackets. Two blanks or more separate columns. An
arrow right before a name is written above it (→h). A column of ordinary words is text.
"""

from __future__ import annotations

import html
import re

_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜ", "0123456789+−aehijklmnoprst", strict=True))
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ᵀⁿᵏᵗʰʸᵐᵅ′", "0123456789+−Tnkthymα′", strict=True))
_LARGE = "Σ∑∏Π⋃"
_LETTER = r"[^\W\d_∂∇√Σ∑∏Π⋃" + "".join(_SUBSCRIPTS) + "".join(_SUPERSCRIPTS) + "]"
_NAME = rf"[Σ∏][\u0300-\u036f]+|{_LETTER}[\u0300-\u036f]*(?:{_LETTER}[\u0300-\u036f]*)*"
_TOKEN = re.compile(
    rf"(?P<space>\s+)|(?P<number>\d+(?:\.\d+)?)|(?P<vector>[→←](?={_LETTER}))|(?P<name>{_NAME})"
    rf"|(?P<low>[{''.join(_SUBSCRIPTS)}]+)|(?P<high>[{''.join(_SUPERSCRIPTS)}]+)|(?P<sign>.)"
)
_WORDS = re.compile(r"(?<![\w(\[])[a-z]{3,}(?![\w(\[])")
_FUNCTIONS = {"tanh", "softmax", "log", "exp", "max", "min", "diag", "sin", "cos", "argmax", "mean", "sign"}


def equation(text: str) -> str:
    """A block of lines as one ``<math>`` table: a row for a line, a cell for a column."""
    lines = [line for line in text.rstrip().split("\n") if line.strip()]
    rows = "".join(f"<mtr>{_row(line)}</mtr>" for line in lines)
    label = html.escape(" ".join(text.split()), quote=True)
    return (
        '<div class="equation" tabindex="0" role="group" aria-label="Equation">'
        f'<math display="block" alttext="{label}"><mtable columnalign="left" displaystyle="true">{rows}</mtable></math></div>\n'
    )


def inline(text: str) -> str:
    """One formula within a sentence."""
    return f'<math alttext="{html.escape(text, quote=True)}">{_formula(text)}</math>'


def _row(line: str) -> str:
    indented = line[:1].isspace()
    cells = [_cell(cell) for cell in re.split(r"\s{2,}", line.strip()) if cell]
    return ("<mtd></mtd>" if indented else "") + "".join(f"<mtd>{cell}</mtd>" for cell in cells)


def _cell(text: str) -> str:
    words = [word for word in _WORDS.findall(text) if word not in _FUNCTIONS]
    if len(words) > (3 if "=" in text else 1) or re.fullmatch(r"[\w ]+:", text):
        return f"<mtext>{html.escape(text)}</mtext>"
    return f"<mrow>{_formula(text)}</mrow>"


def _formula(text: str) -> str:
    return "".join(_Reader(text).atoms())


class _Reader:
    """Reads tokens one after the other and attaches what stands low and high to the atom before it."""

    def __init__(self, text: str) -> None:
        self.tokens = [(str(m.lastgroup), m[0]) for m in _TOKEN.finditer(text)]
        self.place = 0

    def atoms(self, end: str = "") -> list[str]:
        """Atoms up to the sign ``end``, which is read too."""
        found: list[str] = []
        while self.place < len(self.tokens):
            kind, text = self.tokens[self.place]
            if kind == "sign" and text == end:
                self.place += 1
                break
            if kind == "space":
                self.place += 1
                if self._product(found):
                    found.append('<mspace width="0.25em"/>')
                continue
            found.append(self._scripts(self._atom(), text in _LARGE))
        return found

    def _product(self, found: list[str]) -> bool:
        """Whether the blank here separates two factors: signs bring their own room."""
        after = self.tokens[self.place][0] if self.place < len(self.tokens) else "sign"
        closed = bool(found) and (not found[-1].startswith("<mo") or found[-1][-6] in ")]")
        return closed and after in ("name", "number", "vector")

    def _atom(self) -> str:
        kind, text = self.tokens[self.place]
        self.place += 1
        if kind == "number":
            return f"<mn>{text}</mn>"
        if kind == "name":
            return f"<mi>{html.escape(text)}</mi>"
        if kind == "vector":
            return f"<mover><mrow>{self._atom()}</mrow><mo>{text}</mo></mover>"
        if kind in ("low", "high"):  # with nothing before it
            return f"<mn>{''.join(({**_SUBSCRIPTS, **_SUPERSCRIPTS})[c] for c in text)}</mn>"
        if text == "√" and self.place < len(self.tokens):
            return f"<msqrt>{self._scripts(self._atom(), False)}</msqrt>"
        if text in "∂∇":
            return f"<mi>{text}</mi>"
        stretch = ' stretchy="false"' if text in "()[]{}|‖" else ""
        return f"<mo{stretch}>{html.escape(text)}</mo>"

    def _scripts(self, base: str, large: bool) -> str:
        low = high = ""
        while self.place < len(self.tokens):
            kind, text = self.tokens[self.place]
            if kind == "low":
                self.place += 1
                low += _small("".join(_SUBSCRIPTS[c] for c in text))
            elif kind == "high":
                self.place += 1
                high += _small("".join(_SUPERSCRIPTS[c] for c in text))
            elif kind == "sign" and text == "_" and self._follows():
                self.place += 1
                low += self._argument()
            elif kind == "sign" and text == "^" and self._follows():
                self.place += 1
                high += self._argument()
            else:
                break
        over, under, both = ("mover", "munder", "munderover") if large else ("msup", "msub", "msubsup")
        if low and high:
            return f"<{both}>{base}<mrow>{low}</mrow><mrow>{high}</mrow></{both}>"
        if low:
            return f"<{under}>{base}<mrow>{low}</mrow></{under}>"
        if high:
            return f"<{over}>{base}<mrow>{high}</mrow></{over}>"
        return base

    def _follows(self) -> bool:
        return self.place + 1 < len(self.tokens) and self.tokens[self.place + 1][0] != "space"

    def _argument(self) -> str:
        kind, text = self.tokens[self.place]
        if kind == "sign" and text == "{":
            self.place += 1
            return "".join(self.atoms("}"))
        if kind == "sign" and text == "(":
            self.place += 1
            return f'<mo stretchy="false">(</mo>{"".join(self.atoms(")"))}<mo stretchy="false">)</mo>'
        return self._atom()


def _small(text: str) -> str:
    parts = re.findall(r"\d+|\D", text)
    return "".join(
        f"<mn>{p}</mn>" if p.isdigit() else f"<mo>{p}</mo>" if p in "+−" else f"<mi>{p}</mi>" for p in parts
    )
