// Parts of the page that are more than a picture: each asks the server by its own name and draws the answer itself.
import type { ComponentType } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Colours, get } from './api';
import { Steps, sends } from './controls';
import { Intervene } from './intervene';
import { Play } from './play';
import { go, place, runAt } from './state';
import { Steer } from './steer';

export interface PanelProps {
  colours: Colours;
  width: number;
}

/** The panels by the name of their tab; a new one is one line here and one in `studio/panels.py`. */
export const PANELS: Record<string, ComponentType<PanelProps>> = { intervene: Intervene, steer: Steer, play: Play };

/** What every panel shows of its input. */
export interface Looked {
  run: string;
  text: string;
  kind: 'text' | 'numbers' | 'file';
  example: number | null;
  examples: number | null;
  code: string;
}

/** The answer of the panel `name` for the first run, asked with the options that are its `own` and with `more`; what was found last
 * stays until there is another. */
export function useAnswer<T>(name: string, own: string[], more: Record<string, string> = {}): { found: T | null; problem: string; took: number } {
  const at = place.value;
  const [found, setFound] = useState<T | null>(null);
  const [problem, setProblem] = useState('');
  const [took, setTook] = useState(0);
  const words = new URLSearchParams({ panel: name, run: runAt(at.runs[0] ?? '', at), ...more });
  if (at.text.trim()) words.set('text', at.text);
  else if (at.example) words.set('example', at.example);
  for (const key of own) if (at.options[key]) words.set(key, at.options[key]!);
  const asked = words.toString();
  useEffect(() => {
    const stop = new AbortController();
    const begun = performance.now();
    get<T>(`/api/panel?${asked}`, stop.signal)
      .then((answer) => {
        setFound(answer);
        setProblem('');
        setTook(performance.now() - begun);
      })
      .catch((error: Error) => {
        if (!stop.signal.aborted) setProblem(error.message);
      });
    return () => stop.abort();
  }, [asked]);
  return { found, problem, took };
}

/** The box with the input, and the dev examples before and after it. */
export function Ask({ found }: { found: Looked }) {
  const [draft, setDraft] = useState<string | null>(null);
  const timer = useRef(0);
  const at = place.value;
  useEffect(() => setDraft(null), [at.runs[0], at.example]);
  function type(text: string, wait = 150): void {
    setDraft(text);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => go({ text }), wait);
  }
  const number = Number(/^#(\d+)/.exec(found.text)?.[1] ?? (found.example || at.example) ?? 1) || 1;
  const label = found.kind === 'file' ? 'dev example, such as #3' : found.kind === 'numbers' ? 'dev example such as #3, or lines of numbers' : 'input';
  return (
    <div class="row">
      <label class="wide">
        {label}
        <textarea id="input" rows={1} value={draft ?? found.text} onInput={(event) => type(event.currentTarget.value)} onKeyDown={(event) => sends(event, (text) => type(text, 0))} />
      </label>
      {found.examples ? (
        <Steps
          number={number}
          of={found.examples}
          step={(next) => {
            setDraft(null);
            go(found.kind === 'text' ? { text: '', example: String(next) } : { text: `#${next}` });
          }}
        />
      ) : null}
    </div>
  );
}

/** Change options of a panel; `step`: the back button undoes it. */
export function choose(change: Record<string, string>, step = false): void {
  const options = { ...place.value.options, ...change };
  go(step ? { options, view: place.value.view } : { options });
}

/** A slider whose value is in the address; the server is asked when it rests. */
export function Slider({ name, label, least, most, by, usual }: { name: string; label: string; least: number; most: number; by: number; usual: number }) {
  const given = place.value.options[name];
  const [held, setHeld] = useState<string | null>(null);
  const timer = useRef(0);
  const value = held ?? given ?? String(usual);
  function move(next: string): void {
    setHeld(next);
    clearTimeout(timer.current);
    timer.current = window.setTimeout(() => {
      choose({ [name]: Number(next) === usual ? '' : next });
      setHeld(null);
    }, 80);
  }
  return (
    <label class="slider">
      <span>
        {label} <b data-slider={name}>{value}</b>
      </span>
      <input type="range" min={least} max={most} step={by} value={value} onInput={(event) => move(event.currentTarget.value)} />
    </label>
  );
}

/** Buttons and keys that play through steps: Space plays or rests, and the slider's arrow keys step. */
export function Playing({ at, count, label, go: to, name }: { at: number; count: number; label: string; go: (step: number) => void; name: string }) {
  const [on, setOn] = useState(false);
  const now = useRef(at);
  now.current = at;
  useEffect(() => {
    if (!on) return;
    const timer = setInterval(() => {
      if (now.current + 1 >= count) setOn(false);
      else to(now.current + 1);
    }, 700);
    return () => clearInterval(timer);
  }, [on, count]);
  function play(): void {
    if (!on && at + 1 >= count) to(0);
    setOn(!on);
  }
  useEffect(() => {
    function keys(event: KeyboardEvent): void {
      const busy = event.target instanceof HTMLElement && event.target.closest('input:not([type=range]),textarea,select,button,summary,[role=tab]');
      if (event.key !== ' ' || busy || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      play();
    }
    addEventListener('keydown', keys);
    return () => removeEventListener('keydown', keys);
  });
  return (
    <div class="playing" role="group" aria-label={label}>
      <button type="button" aria-label="step back" disabled={at <= 0} onClick={() => to(at - 1)}>
        ‹
      </button>
      <button type="button" aria-label={on ? 'pause' : 'play'} aria-pressed={on} onClick={play}>
        {on ? '❚❚' : '▶'}
      </button>
      <button type="button" aria-label="step on" disabled={at + 1 >= count} onClick={() => to(at + 1)}>
        ›
      </button>
      <label class="slider">
        <span>
          {label} <b data-step>{at + 1}</b> of {count} {name}
        </span>
        <input type="range" min={1} max={Math.max(count, 1)} step={1} value={at + 1} onInput={(event) => to(Number(event.currentTarget.value) - 1)} />
      </label>
    </div>
  );
}

export function num(value: number | null | undefined, digits = 4): string {
  return value === null || value === undefined ? '−∞' : String(Number(value.toPrecision(digits))).replace('-', '−');
}

/** The lines of Python that do the same. */
export function InPython({ code }: { code: string }) {
  return (
    <details class="fold">
      <summary>In Python</summary>
      <pre tabIndex={0}>{code}</pre>
    </details>
  );
}
