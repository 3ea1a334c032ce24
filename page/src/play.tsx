// The player: symbols run through a cell (or an HMM, a filter, attention, layers), with the equations and their numbers.
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { Colours } from './api';
import { spelled } from './explain';
import { Ask, InPython, type Looked, type PanelProps, Playing, choose, num, useAnswer } from './panels';
import { place } from './state';

/** With `over` all units are meant, so that no single number stands for it. */
type Part = string | { ref: string; text?: string; over?: string };

interface Packed {
  shape: number[];
  data: string;
}

interface Equation {
  name: string;
  parts: Part[];
  reads: string[];
  /** A matrix and a vector whose products add up to it. */
  terms: [string, string] | null;
}

interface Reel {
  title: string;
  steps: string[];
  first: number;
  all: number;
  axis: string;
  units: number;
  names: string[] | null;
  note: string;
  difference: number | null;
  equations: Equation[];
  values: Record<string, Packed>;
  matrices: Record<string, Packed>;
  texts: Record<string, string[]>;
}

interface Played extends Looked {
  parts: string[];
  part: number;
  reel: Reel;
}

interface Block {
  width: number;
  data: Float32Array;
}

function unpacked(values: Record<string, Packed>): Record<string, Block> {
  return Object.fromEntries(
    Object.entries(values).map(([name, { shape, data }]) => {
      const bytes = Uint8Array.from(atob(data), (char) => char.charCodeAt(0));
      return [name, { width: shape[1] ?? 1, data: new Float32Array(bytes.buffer) }];
    }),
  );
}

/** The value of a name at a step: of the chosen unit, or the only one there is; NaN for vectors with other units. */
function at(block: Block | undefined, step: number, unit: number, units: number): number {
  if (!block) return NaN;
  if (block.width === 1) return block.data[step]!;
  return block.width === units ? block.data[step * block.width + unit]! : NaN;
}

export function Play({ colours }: PanelProps) {
  const { found, problem, took } = useAnswer<Played>('play', ['s.part', 's.from']);
  if (!found) return problem ? <p class="problem">{problem}</p> : <p class="muted">Looking …</p>;
  return (
    <section class="player" aria-label="Player" data-took={took.toFixed(0)}>
      <Ask found={found} />
      {problem && (
        <p class="problem" role="status">
          {problem}
        </p>
      )}
      <Shown found={found} colours={colours} />
      <InPython code={found.code} />
    </section>
  );
}

function Shown({ found, colours }: { found: Played; colours: Colours }) {
  const { reel } = found;
  const values = useMemo(() => unpacked(reel.values), [reel]);
  const matrices = useMemo(() => unpacked(reel.matrices), [reel]);
  const options = place.value.options;
  const step = Math.max(0, Math.min(Number(options['s.step'] || 1) - 1 - reel.first, reel.steps.length - 1));
  const unit = Math.max(0, Math.min(Number(options['s.unit'] || 1) - 1, reel.units - 1));
  const go = (next: number) => choose({ 's.step': String(next + 1 + reel.first) });
  const pick = (next: number) => choose({ 's.unit': String(next + 1) });
  const cut = reel.all > reel.steps.length;
  return (
    <>
      <div class="sliders">
        <label class="choice">
          what to play
          <select value={String(found.part)} onChange={(event) => choose({ 's.part': event.currentTarget.value, 's.step': '', 's.unit': '', 's.from': '' }, true)}>
            {found.parts.map((name, i) => (
              <option value={String(i + 1)} key={i}>
                {name}
              </option>
            ))}
          </select>
        </label>
        <label class="slider">
          <span>
            unit <b data-unit={unit + 1}>{unit + 1}</b> of {reel.units} {reel.names ? spelled(reel.names[unit] ?? '') : ''}
          </span>
          <input type="range" min={1} max={reel.units} step={1} value={unit + 1} onInput={(event) => pick(Number(event.currentTarget.value) - 1)} />
        </label>
      </div>
      <h3>{reel.title}</h3>
      <Strip labels={reel.steps} step={step} go={go} />
      <Playing at={step} count={reel.steps.length} label={reel.axis} name={`“${spelled(reel.steps[step] ?? '')}”`} go={go} />
      {cut && (
        <p class="muted">
          Steps {reel.first + 1} to {reel.first + reel.steps.length} of {reel.all}.{' '}
          <button type="button" disabled={reel.first === 0} onClick={() => choose({ 's.from': String(Math.max(1, reel.first + 1 - reel.steps.length)), 's.step': '' })}>
            earlier
          </button>{' '}
          <button type="button" disabled={reel.first + reel.steps.length >= reel.all} onClick={() => choose({ 's.from': String(reel.first + 1 + reel.steps.length), 's.step': '' })}>
            later
          </button>
        </p>
      )}
      {Object.entries(reel.texts).map(([name, words]) => (
        <p class="happening" key={name} data-text={name}>
          <span class="muted">{name}:</span> <b>{spelled(words[step] ?? '')}</b>
        </p>
      ))}
      <Diagram reel={reel} values={values} step={step} unit={unit} colours={colours} />
      <ol class="equations" aria-label="Equations with their numbers" aria-live="off">
        {reel.equations.map((one) => (
          <Line key={one.name} one={one} reel={reel} values={values} matrices={matrices} step={step} unit={unit} />
        ))}
      </ol>
      <Vectors reel={reel} values={values} step={step} unit={unit} pick={pick} colours={colours} />
      {reel.note && <p class="muted">{reel.note}</p>}
      {reel.difference !== null && <p class="muted">Equations against the model: max |Δ| = {reel.difference.toExponential(1)}.</p>}
    </>
  );
}

/** The symbols that are read, each a button that goes there. */
function Strip({ labels, step, go }: { labels: string[]; step: number; go: (step: number) => void }) {
  const row = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const box = row.current!;
    const here = box.children[step] as HTMLElement | undefined;
    if (here) box.scrollLeft = here.offsetLeft - box.clientWidth / 2;
  }, [step]);
  return (
    <div class="strip" role="group" aria-label="Steps" ref={row} tabIndex={-1}>
      {labels.map((label, i) => (
        <button type="button" key={i} aria-pressed={i === step} tabIndex={i === step ? 0 : -1} onClick={() => go(i)} onKeyDown={(event) => arrows(event, i, labels.length, go)}>
          {spelled(label)}
        </button>
      ))}
    </div>
  );
}

function arrows(event: KeyboardEvent, i: number, count: number, go: (step: number) => void): void {
  const next = event.key === 'ArrowRight' ? i + 1 : event.key === 'ArrowLeft' ? i - 1 : event.key === 'Home' ? 0 : event.key === 'End' ? count - 1 : -1;
  if (next < 0 || next >= count) return;
  event.preventDefault();
  go(next);
  ((event.currentTarget as HTMLElement).parentElement!.children[next] as HTMLElement).focus();
}

/** `W_f` with its index below. */
function Indexed({ text }: { text: string }) {
  return <>{text.split(/(_[^\s()]+)/).map((piece, i) => (i % 2 ? <sub key={i}>{piece.slice(1).replaceAll('_', ' ')}</sub> : piece))}</>;
}

interface Here {
  reel: Reel;
  values: Record<string, Block>;
  step: number;
  unit: number;
}

/** An equation, and below it the same with numbers. */
function Line({ one, reel, values, matrices, step, unit }: Here & { one: Equation; matrices: Record<string, Block> }) {
  const value = at(values[one.name], step, unit, reel.units);
  const shown = one.parts.map((part) => (typeof part === 'string' ? part : number(part.over ? NaN : at(values[part.ref], step, unit, reel.units))));
  const terms = one.terms && step + reel.first > 0 ? added(one.terms, matrices, values, step, unit) : '';
  return (
    <li data-equation={one.name} data-value={value}>
      <span class="formula">
        <b>
          <Indexed text={one.name} />
        </b>{' '}
        ={' '}
        {one.parts.map((part, i) => (
          <span key={i} class={typeof part === 'string' ? '' : 'ref'}>
            <Indexed text={typeof part === 'string' ? part : (part.text ?? part.ref)} />
          </span>
        ))}
      </span>
      <span class="live">
        = {terms || shown.map((piece, i) => <span key={i}>{typeof one.parts[i] === 'string' ? <Indexed text={piece} /> : <i>{piece}</i>}</span>)} = <b data-v={value}>{number(value)}</b>
      </span>
    </li>
  );
}

function number(value: number): string {
  return Number.isNaN(value) ? '…' : num(value, 3);
}

const MOST_TERMS = 6;

function added([matrix, vector]: [string, string], matrices: Record<string, Block>, values: Record<string, Block>, step: number, unit: number): string {
  const [m, v] = [matrices[matrix], values[vector]];
  if (!m || !v || v.width > MOST_TERMS) return '';
  return [...Array(v.width).keys()].map((i) => `${num(v.data[step * v.width + i]!, 3)} · ${num(m.data[unit * m.width + i]!, 3)}`).join(' + ');
}

const BOX = { width: 86, height: 38, across: 128, down: 50 };

/** The equations as boxes and arrows: a column for each depth of what reads what; colours are the values. */
function Diagram({ reel, values, step, unit, colours }: Here & { colours: Colours }) {
  const drawn = useMemo(() => {
    const shown = new Set(reel.equations.map((one) => one.name));
    const reads = new Map(reel.equations.map((one) => [one.name, one.reads.flatMap((name) => through(name, reel, shown))]));
    for (const one of reel.equations) for (const name of reads.get(one.name)!) if (!reads.has(name)) reads.set(name, []);
    const depth = new Map<string, number>();
    const find = (name: string): number => {
      if (!depth.has(name)) {
        depth.set(name, 0);
        depth.set(name, Math.max(-1, ...reads.get(name)!.filter((other) => other !== name).map(find)) + 1);
      }
      return depth.get(name)!;
    };
    [...reads.keys()].forEach(find);
    const columns: string[][] = [];
    for (const [name, d] of depth) (columns[d] ??= []).push(name);
    const spot = new Map<string, [number, number]>();
    const tallest = Math.max(...columns.map((column) => column?.length ?? 0));
    columns.forEach((column, c) => column?.forEach((name, r) => spot.set(name, [c * BOX.across + 4, (r + (tallest - column.length) / 2) * BOX.down + 4])));
    return { reads, spot, width: (columns.length - 1) * BOX.across + BOX.width + 8, height: tallest * BOX.down };
  }, [reel]);
  const label = reel.equations.map((one) => `${one.name} from ${one.reads.join(', ')}`).join('; ');
  return (
    <div class="diagram" tabIndex={0} role="group" aria-label="Drawing of one step">
      <svg width={drawn.width} height={drawn.height + 44} viewBox={`0 -22 ${drawn.width} ${drawn.height + 44}`} role="img" aria-label={label}>
        {[...drawn.reads].flatMap(([name, all]) =>
          all.map((from) => {
            const [a, b] = [drawn.spot.get(from)!, drawn.spot.get(name)!];
            const [x1, y1, x2, y2] = [a[0] + BOX.width, a[1] + BOX.height / 2, b[0], b[1] + BOX.height / 2];
            // past other columns a line goes around their boxes
            const lane = b[0] - a[0] <= BOX.across ? null : y1 > drawn.height / 2 ? drawn.height + 40 : -40;
            return <path key={`${from} ${name}`} d={`M${x1} ${y1}C${x1 + 22} ${lane ?? y1} ${x2 - 22} ${lane ?? y2} ${x2} ${y2}`} />;
          }),
        )}
        {[...drawn.spot].map(([name, [x, y]]) => {
          const value = at(values[name], step, unit, reel.units);
          const level = Number.isNaN(value) ? 16 : Math.round(16 + 16 * Math.max(-1, Math.min(1, value)));
          const strong = Math.abs(level - 16) > 9;
          const ink = strong ? colours['page']! : colours['text']!;
          return (
            <g key={name} data-box={name} data-value={value}>
              <rect x={x} y={y} width={BOX.width} height={BOX.height} rx={6} fill={Number.isNaN(value) ? colours['page']! : colours[`d${level}`]!} stroke={colours['muted']!} />
              <text x={x + BOX.width / 2} y={y + 15} text-anchor="middle" fill={ink} class="name">
                {name}
              </text>
              <text x={x + BOX.width / 2} y={y + 31} text-anchor="middle" fill={ink}>
                {Number.isNaN(value) ? 'vector' : num(value, 3)}
              </text>
            </g>
          );
        })}
      </svg>
    </div>
  );
}

/** A sum of products is no box: it stands for the input and the states that it reads. */
function through(name: string, reel: Reel, shown: Set<string>): string[] {
  if (shown.has(name) || !name.startsWith('a')) return [name];
  const text = reel.equations.flatMap((one) => one.parts).find((part) => typeof part !== 'string' && part.ref === name && part.text) as { text: string } | undefined;
  if (!text) return [name];
  const words = new Set(text.text.split(/[\s()∘+−]+/));
  return Object.keys(reel.values).filter((other) => words.has(other));
}

/** Every name as a row of cells at this step; the chosen unit is framed, and a click chooses another. */
function Vectors({ reel, values, step, unit, pick, colours }: Here & { pick: (unit: number) => void; colours: Colours }) {
  const wide = Object.entries(values).filter(([name, block]) => block.width > 1 && !name.startsWith('a_') && !name.startsWith('a′'));
  return (
    <div class="vectors">
      {wide.map(([name, block]) => (
        <div key={name} class="vector">
          <span>
            <Indexed text={name} />
          </span>
          <Cells name={name} block={block} step={step} unit={block.width === reel.units ? unit : -1} pick={block.width === reel.units ? pick : null} colours={colours} />
        </div>
      ))}
    </div>
  );
}

function Cells({ name, block, step, unit, pick, colours }: { name: string; block: Block; step: number; unit: number; pick: ((unit: number) => void) | null; colours: Colours }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const pen = canvas.current!.getContext('2d')!;
    const { width } = block;
    const cell = Math.max(1, Math.floor(1024 / width));
    canvas.current!.width = cell * width;
    const row = block.data.subarray(step * width, (step + 1) * width);
    const most = Math.max(1, ...row.map(Math.abs));
    row.forEach((value, i) => {
      pen.fillStyle = colours[`d${Math.round(16 + 16 * Math.max(-1, Math.min(1, value / most)))}`]!;
      pen.fillRect(i * cell, 0, cell, 18);
    });
    if (unit >= 0) {
      pen.strokeStyle = colours['text']!;
      pen.lineWidth = 2;
      pen.strokeRect(unit * cell + 1, 1, Math.max(cell - 2, 1), 16);
    }
  }, [block, step, unit, colours]);
  return (
    <canvas
      ref={canvas}
      height={18}
      role="img"
      aria-label={`${name}: ${block.width} numbers from ${num(Math.min(...block.data.subarray(step * block.width, (step + 1) * block.width)), 3)} to ${num(Math.max(...block.data.subarray(step * block.width, (step + 1) * block.width)), 3)}`}
      onClick={(event) => {
        const box = canvas.current!.getBoundingClientRect();
        pick?.(Math.min(block.width - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * block.width))));
      }}
    />
  );
}
