// Everything that can be seen follows from the address: its fragment holds the whole state and the token.
import { signal } from '@preact/signals';
import type { View } from './api';

export interface Place {
  token: string;
  runs: string[];
  view: string;
  text: string;
  /** The dev example that is shown while no text was typed. */
  example: string;
  target: string;
  theme: string;
  /** The step of the film that is looked at; empty: the weights that the run keeps. */
  frame: string;
  /** The step of the film that is drawn beside; empty: none. */
  beside: string;
  /** Options of views (`o.…`), of the probe (`p.…`) and of panels (`s.…`) as they were typed; all are kept when another view is chosen. */
  options: Record<string, string>;
}

function read(): Place {
  const words = new URLSearchParams(location.hash.slice(1));
  const options: Record<string, string> = {};
  for (const [key, value] of words) if (/^[ops]\./.test(key)) options[key] = value;
  return {
    token: words.get('token') ?? '',
    runs: (words.get('runs') ?? '').split(',').filter(Boolean),
    view: words.get('view') ?? 'explain',
    text: words.get('text') ?? '',
    example: words.get('example') ?? '',
    target: words.get('target') ?? '',
    theme: words.get('theme') ?? '',
    frame: words.get('frame') ?? '',
    beside: words.get('beside') ?? '',
    options,
  };
}

function write(place: Place): string {
  const words = new URLSearchParams();
  const plain = { token: place.token, runs: place.runs.join(','), view: place.view };
  for (const [key, value] of Object.entries(plain)) if (value) words.set(key, value);
  for (const key of ['text', 'example', 'target', 'theme', 'frame', 'beside'] as const) if (place[key]) words.set(key, place[key]);
  for (const [key, value] of Object.entries(place.options)) if (value !== '') words.set(key, value);
  return `#${words}`;
}

export const place = signal<Place>(read());

/** Change some of the state; a new view or run is a step that the back button undoes. */
export function go(change: Partial<Place>): void {
  const next = { ...place.value, ...change };
  const step = 'view' in change || 'runs' in change;
  place.value = next;
  history[step ? 'pushState' : 'replaceState'](null, '', write(next));
}

addEventListener('hashchange', () => (place.value = read()));
addEventListener('popstate', () => (place.value = read()));

/** A run as the server takes it: with the step of its film that is looked at. */
export function runAt(run: string, at: Place): string {
  return at.frame ? `${run}@${at.frame}` : run;
}

/** The question a picture answers, as the server takes it: of the options those that the view has. */
export function query(at: Place, view: View | undefined, width: number): string {
  const words = new URLSearchParams({ view: at.view });
  const filmed = ['probe', 'vectors', 'dev'].includes(view?.of ?? '');
  for (const run of at.runs) words.append('run', filmed ? runAt(run, at) : run);
  if (filmed && at.beside && at.runs.length) words.append('run', `${at.runs[0]}@${at.beside}`);
  if (at.text) words.set('text', at.text);
  if (at.target) words.set('target', at.target);
  if (width) words.set('w', String(width));
  const known = new Set((view?.options ?? []).map((option) => `o.${option.name}`));
  for (const [key, value] of Object.entries(at.options)) if (value !== '' && (key.startsWith('p.') || known.has(key))) words.set(key, value);
  return words.toString();
}

/** The same for an explanation of the first run. */
export function explainQuery(at: Place, width: number): string {
  const words = new URLSearchParams({ run: runAt(at.runs[0] ?? '', at) });
  if (at.text.trim()) words.set('text', at.text);
  else if (at.example) words.set('example', at.example);
  if (at.target) words.set('target', at.target);
  if (width) words.set('w', String(width));
  for (const key of ['o.output', 'p.beam']) if (at.options[key]) words.set(key, at.options[key]!);
  return words.toString();
}
