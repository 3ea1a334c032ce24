// The search under your hands: the beam as a tree of buttons, or the prefixes of CTC frame by frame.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { spelled } from './explain';
import { Ask, InPython, type Looked, type PanelProps, Playing, Slider, choose, num, useAnswer } from './panels';
import { place } from './state';

interface Said {
  text: string;
  pieces?: string[];
  symbols?: number[];
  log_prob?: number | null;
  score?: number | null;
  why?: string;
}

interface Node {
  step: number;
  fate: 'kept' | 'finished' | 'pruned';
  parent: number;
  piece: string;
  step_log_prob: number | null;
  log_prob: number | null;
  score: number | null;
  symbols: number[];
  following?: string[];
}

interface Prefix {
  fate: 'kept' | 'pruned';
  symbols: number[];
  pieces: string[];
  blank: number | null;
  label: number | null;
  log_prob: number;
  grown: boolean;
  following?: string[];
}

interface Steered extends Looked {
  facts: { found: Said; free: Said; reference?: Said; verdict?: string; because?: string; steered: boolean; beam: number; length_penalty?: number; temperature: number; posterior_seconds?: number };
  wanted: string;
  force: [number, string][];
  ban: { symbols: number[]; pieces: string[] }[];
  nodes?: Node[];
  more?: boolean;
  frames?: Prefix[][];
  lexicon: boolean;
}

const OWN = ['s.force', 's.ban', 's.beam', 's.alpha', 's.heat', 's.lexicon', 's.reference'];
const COLUMN = 136;
const ROW = 30;

export function Steer(_: PanelProps) {
  const { found, problem, took } = useAnswer<Steered>('steer', OWN);
  if (!found) return problem ? <p class="problem">{problem}</p> : <p class="muted">Searching …</p>;
  const { facts } = found;
  return (
    <section class="steer" aria-label="Steer the search" data-took={took.toFixed(0)}>
      <Ask found={found} />
      <div class="sliders">
        <Slider name="s.beam" label="beam width" least={1} most={20} by={1} usual={usual('s.beam', facts.beam)} />
        {facts.length_penalty !== undefined && <Slider name="s.alpha" label="length penalty" least={0} most={2} by={0.1} usual={usual('s.alpha', facts.length_penalty)} />}
        <Slider name="s.heat" label="temperature" least={0.2} most={3} by={0.1} usual={1} />
        {found.lexicon && (
          <label class="check">
            <input type="checkbox" checked={place.value.options['s.lexicon'] === '1'} onChange={(event) => choose({ 's.lexicon': event.currentTarget.checked ? '1' : '' }, true)} /> only words of the training transcripts
          </label>
        )}
      </div>
      {problem && (
        <p class="problem" role="status">
          {problem}
        </p>
      )}
      <Rules found={found} />
      <Outcome found={found} />
      {found.frames ? <Prefixes found={found} /> : <Tree found={found} />}
      <InPython code={found.code} />
    </section>
  );
}

// what the model uses where nothing is asked: the first answer without the slider's value
const USUAL: Record<string, number> = {};
function usual(name: string, now: number): number {
  const key = `${place.value.runs[0]} ${name}`;
  if (!place.value.options[name]) USUAL[key] = now;
  return USUAL[key] ?? now;
}

function force(symbols: number[]): void {
  choose({ 's.force': symbols.join('.') }, true);
}

function ban(found: Steered, symbols: number[]): void {
  choose({ 's.ban': [...found.ban.map((one) => one.symbols.join('.')), symbols.join('.')].join('~') }, true);
}

/** What is forced and banned, each with a button that takes it back. */
function Rules({ found }: { found: Steered }) {
  if (!found.force.length && !found.ban.length) return <p class="muted">No rule yet: choose a box below, then force or ban it.</p>;
  return (
    <div class="rules" role="group" aria-label="Rules">
      {found.force.length > 0 && (
        <button type="button" class="rule" title="take it back" onClick={() => choose({ 's.force': '' }, true)}>
          begins with <b>{found.force.map(([, piece]) => spelled(piece)).join(' ')}</b> ×
        </button>
      )}
      {found.ban.map((one, i) => (
        <button
          type="button"
          class="rule banned"
          key={one.symbols.join('.')}
          title="take it back"
          onClick={() => choose({ 's.ban': found.ban.filter((_, k) => k !== i).map((other) => other.symbols.join('.')).join('~') }, true)}
        >
          not <b>{one.pieces.map(spelled).join(' ')}</b> ×
        </button>
      ))}
      <button type="button" onClick={() => choose({ 's.force': '', 's.ban': '' }, true)}>
        Take all back
      </button>
    </div>
  );
}

/** What came out, what would have come out, what was wanted, and whose fault it is. */
function Outcome({ found }: { found: Steered }) {
  const { facts } = found;
  const rows: [string, Said, string][] = [['found', facts.found, '']];
  if (facts.steered) rows.push(['without rules', facts.free, '']);
  if (facts.reference) rows.push(['wanted', facts.reference, facts.reference.why ?? '']);
  return (
    <div class="answer" role="status">
      <table class="outcome">
        <tbody>
          {rows.map(([name, said, why]) => (
            <tr key={name} data-name={name} data-score={said.score ?? ''} data-log-p={said.log_prob ?? ''}>
              <th scope="row">{name}</th>
              <td class="said" data-text={said.text}>
                {said.text || '(nothing)'}
              </td>
              <td class="muted">{why || `score ${num(said.score)}, log p ${num(said.log_prob)}`}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {facts.verdict && (
        <p class="verdict" data-verdict={facts.verdict}>
          {VERDICTS[facts.verdict]}
          {facts.because && ` ${facts.because[0]!.toUpperCase()}${facts.because.slice(1)}`}
        </p>
      )}
    </div>
  );
}

const VERDICTS: Record<string, string> = {
  'search error': 'Search error: the model scores what was wanted above what was found, so the search missed it. Widen the beam.',
  'model error': 'Model error: the model itself scores what was found above what was wanted. No wider beam helps.',
  rule: 'Forbidden by your rules: neither the search nor the model is at fault.',
  setting: 'Forbidden by a setting of the search, whatever the beam.',
  found: 'What was wanted was found.',
};

/** Rows of the tree: one for every leaf, every parent amid its children. */
function placed(nodes: Node[]): { y: number[]; rows: number } {
  const children = new Map<number, number[]>();
  nodes.forEach((node, i) => children.set(node.parent, [...(children.get(node.parent) ?? []), i]));
  const y: number[] = nodes.map(() => 0);
  let rows = 0;
  const visit = (i: number): number => {
    const below = children.get(i) ?? [];
    y[i] = below.length ? below.map(visit).reduce((a, b) => a + b, 0) / below.length : rows++;
    return y[i]!;
  };
  (children.get(-1) ?? []).forEach(visit);
  return { y, rows: Math.max(rows, 1) };
}

function Tree({ found }: { found: Steered }) {
  const all = found.nodes ?? [];
  const steps = 1 + Math.max(-1, ...all.map((node) => node.step));
  // what is chosen belongs to one answer: another begins with all steps and nothing chosen
  const [held, hold] = useState({ found, seen: steps, chosen: -1 });
  const { seen, chosen } = held.found === found ? held : { seen: steps, chosen: -1 };
  const setSeen = (next: number) => hold({ found, seen: next, chosen });
  const setChosen = (next: number) => hold({ found, seen, chosen: next });
  const { y, rows } = useMemo(() => placed(all), [all]);
  const best = useMemo(() => new Set([...path(found.facts.found.symbols ?? [], all)]), [found]);
  const field = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const first = all.findIndex((_, i) => best.has(i));
    if (first >= 0) field.current!.scrollTop = y[first]! * ROW - 180;
  }, [found]);
  const node = all[chosen];

  function keys(event: KeyboardEvent): void {
    const at = chosen;
    if (!all.length) return;
    if (event.key === 'f' && node) return force(node.symbols);
    if (event.key === 'b' && node) return ban(found, node.symbols);
    let next = at;
    if (at < 0) next = 0;
    else if (event.key === 'ArrowLeft') next = Math.max(node!.parent, -1) < 0 ? at : node!.parent;
    else if (event.key === 'ArrowRight') next = all.findIndex((other) => other.parent === at);
    else if (event.key === 'ArrowUp' || event.key === 'ArrowDown') {
      const column = all.map((other, i) => [i, other] as const).filter(([, other]) => other.step === node!.step);
      column.sort((a, b) => y[a[0]]! - y[b[0]]!);
      const here = column.findIndex(([i]) => i === at) + (event.key === 'ArrowUp' ? -1 : 1);
      next = column[here]?.[0] ?? at;
    } else return;
    event.preventDefault();
    if (next < 0) return;
    setChosen(next);
    field.current?.querySelector<HTMLElement>(`[data-node="${next}"]`)?.focus();
  }

  return (
    <div class="tree">
      <Playing at={seen - 1} count={steps} label="step" name="" go={(step) => setSeen(step + 1)} />
      <Chosen node={node} found={found} />
      <div class="beam" role="group" aria-label="The beam; arrow keys walk, f forces and b bans what is chosen" ref={field} onKeyDown={keys} tabIndex={-1}>
        <div class="inner" style={{ width: `${steps * COLUMN + 8}px`, height: `${rows * ROW + 8}px` }}>
          <svg width={steps * COLUMN + 8} height={rows * ROW + 8} aria-hidden="true">
            {all.map((one, i) => {
              if (one.step >= seen || one.parent < 0) return null;
              const from = [one.step * COLUMN - 12, y[one.parent]! * ROW + ROW / 2 + 4];
              const to = [one.step * COLUMN + 6, y[i]! * ROW + ROW / 2 + 4];
              return <path key={i} d={`M${from}L${to}`} class={best.has(i) ? 'best' : one.fate} />;
            })}
          </svg>
          {all.map((one, i) =>
            one.step >= seen ? null : (
              <button
                type="button"
                key={i}
                data-node={i}
                class={`node ${one.fate}${best.has(i) ? ' best' : ''}`}
                aria-pressed={i === chosen}
                tabIndex={i === chosen || (chosen < 0 && i === 0) ? 0 : -1}
                data-score={one.score ?? ''}
                data-p={one.step_log_prob ?? ''}
                style={{ left: `${one.step * COLUMN + 6}px`, top: `${y[i]! * ROW + 6}px`, width: `${COLUMN - 18}px` }}
                title={`${spelled(one.piece)}: score ${num(one.score)}, log p of the symbol ${num(one.step_log_prob)}, ${one.fate}`}
                onClick={() => setChosen(i === chosen ? -1 : i)}
              >
                <span class="what">{spelled(one.piece)}</span>
                <small>
                  {one.score === null ? '' : one.score.toFixed(2).replace('-', '−')}
                  {one.fate === 'finished' ? ' ✓' : ''}
                </small>
              </button>
            ),
          )}
        </div>
      </div>
      {found.more && <p class="muted">Only the first nodes are drawn.</p>}
    </div>
  );
}

/** The nodes on the way to an output. */
function path(symbols: number[], nodes: Node[]): number[] {
  const wanted = symbols.join('.');
  return nodes.flatMap((node, i) => {
    const own = node.symbols.join('.');
    const ended = node.fate === 'finished' && node.symbols.slice(0, -1).join('.') === wanted;
    return ended || (node.fate !== 'pruned' && (wanted === own || wanted.startsWith(`${own}.`))) ? [i] : [];
  });
}

function Chosen({ node, found }: { node: Node | undefined; found: Steered }) {
  if (!node) return <p class="muted picked">Choose a box of the tree: click it, or walk with the arrow keys.</p>;
  const ended = node.fate === 'finished';
  return (
    <div class="picked" role="status" data-symbols={node.symbols.join('.')}>
      <span>
        <b>{spelled(node.piece)}</b> at step {node.step + 1}, {node.fate}: p = {num(Math.exp(node.step_log_prob ?? -Infinity))}, log p of all so far {num(node.log_prob)}, score {num(node.score)}
        {node.following ? `; the lexicon goes on with ${node.following.slice(0, 12).map(spelled).join(' ')}` : ''}
      </span>
      <button type="button" onClick={() => force(node.symbols)}>
        Force {ended ? 'this output' : 'it'} <kbd>f</kbd>
      </button>
      <button type="button" onClick={() => ban(found, node.symbols)}>
        Ban it <kbd>b</kbd>
      </button>
    </div>
  );
}

/** The prefixes after one frame: log p of paths that end in a blank and in a symbol, as parts of one bar. */
function Prefixes({ found }: { found: Steered }) {
  const frames = found.frames!;
  const [at, setAt] = useState(frames.length - 1);
  useEffect(() => setAt((now) => Math.min(now, frames.length - 1)), [found]);
  const shown = frames[Math.min(at, frames.length - 1)] ?? [];
  const most = Math.max(...shown.map((one) => one.log_prob));
  const share = (value: number | null) => (value === null ? 0 : 100 * Math.exp(value - most));
  const wanted = (found.facts.found.symbols ?? []).join('.');
  const seconds = found.facts.posterior_seconds;
  return (
    <div class="tree">
      <Playing at={at} count={frames.length} label="frame" name={seconds ? `(${((at + 1) * seconds).toFixed(2)} s)` : ''} go={setAt} />
      <p class="muted">
        <span class="keyed blank" /> paths that end in a blank <span class="keyed label" /> paths that end in the last symbol; both in parts of the best prefix
      </p>
      <div class="prefixes" tabIndex={0} role="group" aria-label="Prefixes">
        <table>
          <thead>
            <tr>
              <th scope="col">prefix</th>
              <th scope="col">probability</th>
              <th scope="col">log p</th>
              <th scope="col">rule</th>
              {shown.some((one) => one.following) && <th scope="col">lexicon goes on with</th>}
            </tr>
          </thead>
          <tbody>
            {shown.map((one) => {
              const own = one.symbols.join('.');
              return (
                <tr key={own} class={`${one.fate}${own === wanted || wanted.startsWith(`${own}.`) ? ' best' : ''}`} data-prefix={own} data-log-p={one.log_prob} data-blank={one.blank ?? ''} data-label={one.label ?? ''}>
                  <th scope="row">
                    {one.pieces.map(spelled).join('') || '∅'}
                    {one.grown ? <span class="muted"> +</span> : ''}
                  </th>
                  <td class="masses">
                    <span class="blank" style={{ width: `${share(one.blank)}%` }} />
                    <span class="label" style={{ width: `${share(one.label)}%` }} />
                  </td>
                  <td>{num(one.log_prob)}</td>
                  <td class="act">
                    {own && (
                      <>
                        <button type="button" aria-label={`force ${one.pieces.join('')}`} onClick={() => force(one.symbols)}>
                          Force
                        </button>{' '}
                        <button type="button" aria-label={`ban ${one.pieces.join('')}`} onClick={() => ban(found, one.symbols)}>
                          Ban
                        </button>
                      </>
                    )}
                  </td>
                  {one.following && <td>{one.following.slice(0, 12).map(spelled).join(' ')}</td>}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
    </div>
  );
}
