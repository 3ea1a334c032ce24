"""One HTML file that holds all it needs: no request leaves it, and its own policy forbids any."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

from anaphora.views import svg
from anaphora.views.scene import Image
from anaphora.views.svg import escape

if TYPE_CHECKING:
    from anaphora.views.picture import Chart

STYLE = """
:root{color-scheme:light dark;--page:#fff;--text:#1c1e21;--muted:#5f6670;--line:#e1e3e6;--accent:#c8500a}
@media (prefers-color-scheme:dark){:root{--page:#12151b;--text:#eceef1;--muted:#a2a9b4;--line:#2d333d;--accent:#f5955a}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:16px/1.55 system-ui,'Segoe UI','Noto Sans',sans-serif}
main{max-width:76rem;margin:0 auto;padding:1.5rem 1rem 3rem}
.figure{overflow-x:auto;outline-offset:4px;border-radius:6px}
.figure:focus-visible,button:focus-visible,summary:focus-visible{outline:2px solid var(--accent)}
.figure svg{display:block}
.words{padding-left:24px}
.cross{fill:none;stroke:var(--accent);stroke-width:1.5;pointer-events:none}
output{display:block;min-height:1.6em;font-variant-numeric:tabular-nums;font-weight:600}
p{max-width:46rem;margin:.6rem 0}
.muted{color:var(--muted);font-size:.9rem}
button{font:inherit;font-size:.9rem;padding:.3rem .8rem;margin:.4rem .4rem .4rem 0;border:1px solid var(--line);
border-radius:6px;background:transparent;color:inherit;cursor:pointer}
button:hover{border-color:var(--accent)}
details{margin:.6rem 0}summary{cursor:pointer}
.numbers{overflow-x:auto}
table{border-collapse:collapse;font-size:.8rem;font-variant-numeric:tabular-nums}
th,td{padding:.15rem .5rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th:first-child{text-align:left}
.framed main{padding:0}
.framed .figure svg{max-width:100%;height:auto}
h1{position:absolute;left:-999rem;margin:0}
pre{overflow-x:auto;padding:.6rem .8rem;border:1px solid var(--line);border-radius:6px;font-size:.85rem}
"""

SCRIPT = """
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const figure = document.querySelector('.figure');
const svg = figure.querySelector('svg');
const out = document.querySelector('output');
const hint = out.textContent;
const marks = [...svg.querySelectorAll('[data-v]')];
const grid = data.rows !== undefined;
const columns = grid ? data.columns.length : 0;
let current = -1;
let cross = [];

function box(x, y, width, height) {
  const rect = document.createElementNS(svg.namespaceURI, 'rect');
  const values = {x, y, width, height, rx: 3, class: 'cross'};
  for (const name in values) rect.setAttribute(name, values[name]);
  svg.append(rect);
  cross.push(rect);
}

function show(index) {
  cross.forEach(rect => rect.remove());
  cross = [];
  current = index;
  if (index < 0) { out.textContent = hint; return; }
  const mark = marks[index];
  if (!grid) {
    out.textContent = mark.dataset.t;
    const b = mark.getBBox();
    box(b.x - 4, b.y - 4, b.width + 8, b.height + 8);
    return;
  }
  const r = Number(mark.dataset.r), c = Number(mark.dataset.c);
  out.textContent = data.rows[r] + ' ← ' + data.columns[c] + ': ' + Number(mark.dataset.v).toFixed(4);
  const first = marks[0].getBBox(), last = marks[marks.length - 1].getBBox(), here = mark.getBBox();
  box(first.x - 1, here.y - 1, last.x + last.width - first.x + 2, here.height + 2);
  box(here.x - 1, first.y - 1, here.width + 2, last.y + last.height - first.y + 2);
}

svg.addEventListener('pointermove', event => {
  const mark = event.target.closest('[data-v]');
  if (mark) show(marks.indexOf(mark));
});
svg.addEventListener('pointerleave', () => show(-1));
figure.addEventListener('keydown', event => {
  const steps = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: grid ? -columns : -1, ArrowDown: grid ? columns : 1};
  if (event.key === 'Escape') { show(-1); return; }
  if (!(event.key in steps) || marks.length === 0) return;
  event.preventDefault();
  const next = current < 0 ? 0 : current + steps[event.key];
  if (next >= 0 && next < marks.length) show(next);
});

function save(text, type, ending) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], {type}));
  link.download = data.name + ending;
  link.click();
  URL.revokeObjectURL(link.href);
}
document.getElementById('save-svg').addEventListener('click', () => {
  show(-1);
  save(new XMLSerializer().serializeToString(svg), 'image/svg+xml', '.svg');
});
document.getElementById('save-csv').addEventListener('click', () => save(data.csv, 'text/csv', '.csv'));

// Inside another page: say how high this one is, and take the theme that page has chosen.
if (window.parent !== window) {
  document.documentElement.classList.add('framed');
  const main = document.querySelector('main');
  new ResizeObserver(() => window.parent.postMessage({height: Math.ceil(main.scrollHeight)}, '*')).observe(main);
  window.addEventListener('message', event => {
    const theme = event.data && event.data.theme;
    if (event.source !== window.parent || (theme !== 'dark' && theme !== 'light')) return;
    document.documentElement.style.colorScheme = theme;
    for (const sheet of document.styleSheets) {
      for (const rule of sheet.cssRules) {
        if (rule instanceof CSSMediaRule) rule.media.mediaText = theme === 'dark' ? 'all' : 'not all';
      }
    }
  });
}
"""


def page(chart: Chart, *, name: str, code: str = "") -> str:
    """The page of a chart: the picture, what the pointer or the arrow keys touch, how to read it, the numbers."""
    scene = chart.scene()
    picture = svg.render(scene, titles=False)
    inner_style = re.findall(r"<style>(.*?)</style>", picture, flags=re.S)[0]
    data = {**chart.page_data(), "csv": chart.csv(), "name": name}
    images = "img-src data:; " if any(isinstance(shape, Image) for shape in scene.shapes) else ""
    policy = (
        f"default-src 'none'; {images}style-src '{_sha256(STYLE)}' '{_sha256(inner_style)}'; "
        f"script-src '{_sha256(SCRIPT)}'; base-uri 'none'; form-action 'none'"
    )
    notes = "".join(f'<p class="muted">{escape(note)}</p>\n' for note in chart.notes)
    source = f"<details><summary>Code</summary><pre>{escape_block(code)}</pre></details>\n" if code else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(chart.title)}</title>
<style>{STYLE}</style>
</head>
<body>
<main>
<h1>{escape(chart.title)}</h1>
<div class="figure" tabindex="0" role="group" aria-label="{escape(chart.title)}; arrow keys move from value to value">
{picture}</div>
<div class="words">
<output aria-live="polite">Point at a value, or press the arrow keys.</output>
<div><button type="button" id="save-svg">Save SVG</button><button type="button" id="save-csv">Save CSV</button></div>
<p>{escape(chart.reading)}</p>
<p class="muted">{escape(chart.caution)}</p>
{notes}{source}<details><summary>Numbers</summary><div class="numbers" tabindex="0">{_table(chart)}</div></details>
</div>
</main>
<script type="application/json" id="data">{_json(data)}</script>
<script>{SCRIPT}</script>
</body>
</html>
"""


def escape_block(text: str) -> str:
    """Several lines of text for a <pre>: line ends stay, all else is made visible."""
    return "\n".join(escape(line) for line in text.split("\n"))


def _table(chart: Chart) -> str:
    head, body = chart.table()
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    rows = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(x)}</td>" for x in row[1:])
        + "</tr>\n"
        for row in body
    )
    return f"<table><thead><tr>{cells}</tr></thead><tbody>\n{rows}</tbody></table>"


def _json(data: dict[str, Any]) -> str:
    """JSON that cannot end the script element it stands in."""
    return (
        json.dumps(data, ensure_ascii=True)
        .replace("<", "\\u003c")
        .replace(">", "\\u003e")
        .replace("&", "\\u0026")
    )


def _sha256(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
