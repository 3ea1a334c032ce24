// Change something inside the model and see what that does to its answer; each change is a line of Python.
import { useRef, useState } from 'preact/hooks';
import type { Answer, Picture } from './api';
import { set } from './controls';
import { Body, num, spelled } from './explain';
import { Scene } from './scene';
import { Ask, InPython, type Looked, type PanelProps, useAnswer } from './panels';
import { place } from './state';

type Change = { kind: string } & Record<string, string | number>;

interface Heads {
  where: string;
  layers: number;
  /** 0 where an attention has but one score for each pair. */
  heads: number;
  rows: string[];
  columns: string[];
}

interface States {
  where: string;
  layers: number;
  /** Of layers that read both ways: forward and backward. */
  directions: string[];
  units: number;
  places: string[];
}

interface Found extends Looked {
  reading: string;
  caution: string;
  before: Answer;
  after: Answer;
  wanted: string | null;
  loss: (number | null)[];
  delta: number | null;
  changes: { kind: string; code: string }[];
  places: { heads: Heads[]; states: States[] };
  picture: Picture | null;
}

const KINDS: Record<string, string> = { Silence: 'silence a head', Attend: 'set attention', Clamp: 'clamp a unit', Noise: 'add noise', Patch: 'patch a state' };
/** What can be dragged once it is there: its lowest and highest value and its steps. */
const DRAGGED: Record<string, [string, number, number, number]> = { Attend: ['weight', 0, 1, 0.01], Clamp: ['value', -3, 3, 0.05], Noise: ['std', 0, 2, 0.05] };
const PAUSE = 80;

function read(text: string): Change[] {
  try {
    const found: unknown = JSON.parse(text || '[]');
    return Array.isArray(found) ? (found as Change[]) : [];
  } catch {
    return [];
  }
}

export function Intervene({ colours, width }: PanelProps) {
  const at = place.value;
  const [dragged, setDragged] = useState<Change[] | null>(null);
  const timer = useRef(0);
  const { found, problem } = useAnswer<Found>('intervene', ['s.do'], { w: String(width), ...(at.target ? { target: at.target } : {}) });
  const changes = dragged ?? read(at.options['s.do'] ?? '');

  function put(next: Change[]): void {
    clearTimeout(timer.current);
    setDragged(null);
    set('s.do', next.length ? JSON.stringify(next) : '');
  }
  function drag(index: number, key: string, value: number): void {
    const next = changes.map((one, i) => (i === index ? { ...one, [key]: value } : one));
    setDragged(next);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => put(next), PAUSE);
  }

  return (
    <section class="intervene" aria-label="Interventions">
      {found && <Ask found={found} />}
      {found && <Adding places={found.places} add={(change) => put([...changes, change])} />}
      <ol class="changes">
        {changes.map((one, i) => {
          const range = DRAGGED[one.kind];
          const code = found?.changes[i]?.code ?? one.kind;
          return (
            <li key={i}>
              <code>{code}</code>
              {range && (
                <input
                  type="range"
                  min={range[1]}
                  max={range[2]}
                  step={range[3]}
                  value={Number(one[range[0]])}
                  aria-label={`${range[0]} of change ${i + 1}`}
                  onInput={(event) => drag(i, range[0], Number(event.currentTarget.value))}
                />
              )}
              <button type="button" aria-label={`Remove change ${i + 1}`} onClick={() => put(changes.filter((_, k) => k !== i))}>
                Remove
              </button>
            </li>
          );
        })}
      </ol>
      {problem && <p class="problem">{problem}</p>}
      {found && (
        <>
          {changes.length === 0 && <p class="muted">Nothing is changed: before and after are the same.</p>}
          {found.delta !== null && changes.length > 0 && (
            <p class="delta" role="status" data-delta={found.delta} data-before={found.loss[0]} data-after={found.loss[1]}>
              Δ loss <b>{(found.delta > 0 ? '+' : '') + num(found.delta)}</b>{' '}
              <span class="muted">
                {num(found.loss[0] ?? undefined)} before, {num(found.loss[1] ?? undefined)} after{found.wanted ? `, of “${found.wanted}”` : ''}
              </span>
            </p>
          )}
          <div class="beside">
            <div data-kind={found.before.kind}>
              <h2>Before</h2>
              <Body answer={found.before} rests={null} beside={found.after} />
            </div>
            <div data-kind={found.after.kind}>
              <h2>After</h2>
              <Body answer={found.after} rests={null} beside={found.before} />
            </div>
          </div>
          {found.picture && <Scene picture={found.picture} colours={colours} />}
          <InPython code={found.code} />
          <p class="muted">{found.reading}</p>
          <p class="caution">{found.caution}</p>
        </>
      )}
    </section>
  );
}

function Adding({ places, add }: { places: Found['places']; add: (change: Change) => void }) {
  const can = Object.keys(KINDS).filter((kind) =>
    kind === 'Silence' ? places.heads.some((one) => one.heads > 0) : kind === 'Attend' ? places.heads.length > 0 : places.states.length > 0,
  );
  const [chosen, setKind] = useState('');
  const [fields, setFields] = useState<Record<string, string>>({});
  const kind = can.includes(chosen) ? chosen : (can[0] ?? '');
  if (!kind) return <p class="muted">Nothing inside this model can be changed.</p>;
  const looks = kind === 'Silence' || kind === 'Attend';
  const among: (Heads | States)[] = looks ? places.heads.filter((one) => kind === 'Attend' || one.heads > 0) : places.states;
  const part = among.find((one) => one.where === fields['where']) ?? among.find((one) => one.where === 'decoder' && !looks) ?? among[0]!;
  const value = (name: string, usual: string) => fields[name] ?? usual;
  const field = (name: string, label: string, usual: string, most?: number) => (
    <label key={name}>
      {label}
      <input type="number" min={most ? 1 : undefined} max={most} step={most ? 1 : 'any'} value={value(name, usual)} onInput={(event) => setFields({ ...fields, [name]: event.currentTarget.value })} />
    </label>
  );
  const symbols = (name: string, label: string, names: string[], all: boolean) => (
    <label key={name}>
      {label}
      <select value={value(name, all ? '' : '1')} onChange={(event) => setFields({ ...fields, [name]: event.currentTarget.value })}>
        {all && <option value="">all</option>}
        {names.slice(0, 500).map((one, i) => (
          <option key={i} value={String(i + 1)}>
            {i + 1} {spelled(one)}
          </option>
        ))}
      </select>
    </label>
  );
  const heads = part as Heads;
  const states = part as States;
  const rows = {
    Silence: () => [field('head', 'head', '1', heads.heads)],
    Attend: () => [
      symbols('at', 'from', heads.rows, false),
      symbols('to', 'to', heads.columns, false),
      ...(heads.heads ? [field('head', 'head (empty: all)', '', heads.heads)] : []),
      field('weight', 'weight', '0.9'),
    ],
    Clamp: () => [field('unit', 'unit', '1', states.units), symbols('at', 'at', states.places, true), field('value', 'value', '0')],
    Noise: () => [field('unit', 'unit (empty: all)', '', states.units), symbols('at', 'at', states.places, true), field('std', 'deviation', '0.5'), field('seed', 'seed', '1', 1000000)],
    Patch: () => [
      symbols('at', 'at', states.places, false),
      <label key="source" class="wide">
        by the state of another input
        <input value={value('source', '')} onInput={(event) => setFields({ ...fields, source: event.currentTarget.value })} />
      </label>,
      field('source_at', 'at its place (empty: the same)', '', 4096),
    ],
  }[kind]!();

  function send(event: Event): void {
    event.preventDefault();
    const usual: Record<string, string> = { layer: '1', at: kind === 'Attend' || kind === 'Patch' ? '1' : '', to: '1', head: kind === 'Silence' ? '1' : '', unit: kind === 'Clamp' ? '1' : '', weight: '0.9', value: '0', std: '0.5', seed: '1', source: '', source_at: '' };
    const names: Record<string, string[]> = { Silence: ['head'], Attend: ['at', 'to', 'head', 'weight'], Clamp: ['unit', 'at', 'value'], Noise: ['unit', 'at', 'std', 'seed'], Patch: ['at', 'source', 'source_at'] };
    const change: Change = { kind };
    if (part.where) change['where'] = part.where;
    if (!looks && states.directions.length) {
      const way = fields['direction'] ?? (kind === 'Clamp' ? states.directions[0]! : '');
      if (way) change['direction'] = way;
    }
    for (const name of ['layer', ...names[kind]!]) {
      const text = fields[name] ?? usual[name]!;
      if (text !== '') change[name] = name === 'source' ? text : Number(text);
    }
    add(change);
  }
  return (
    <form class="adding" onSubmit={send} aria-label="New change">
      <label>
        change
        <select value={kind} onChange={(event) => setKind(event.currentTarget.value)}>
          {can.map((name) => (
            <option key={name} value={name}>
              {KINDS[name]}
            </option>
          ))}
        </select>
      </label>
      {among.length > 1 && (
        <label>
          where
          <select value={part.where} onChange={(event) => setFields({ ...fields, where: event.currentTarget.value })}>
            {among.map((one) => (
              <option key={one.where} value={one.where}>
                {one.where}
              </option>
            ))}
          </select>
        </label>
      )}
      {part.layers > 1 && field('layer', 'layer', '1', part.layers)}
      {!looks && states.directions.length > 0 && (
        <label>
          direction
          <select value={value('direction', kind === 'Clamp' ? states.directions[0]! : '')} onChange={(event) => setFields({ ...fields, direction: event.currentTarget.value })}>
            {kind !== 'Clamp' && <option value="">both</option>}
            {states.directions.map((one) => (
              <option key={one} value={one}>
                {one}
              </option>
            ))}
          </select>
        </label>
      )}
      {rows}
      <button type="submit">Change it</button>
    </form>
  );
}
