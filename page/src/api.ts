// What the server is asked, and how its answers look.

export interface Run {
  id: string;
  name: string;
  task: string;
  model: string;
  /** Why the run cannot be read; empty where it can. */
  broken: string;
  measures: Record<string, number>;
  step: number | null;
  steps: number | null;
  /** How its training ended: finished, patience, interrupted, callback; empty where no end was written. */
  ended: string;
  trained: boolean;
  training: boolean;
  changed: number;
}

export interface Option {
  name: string;
  kind: string;
  default: string | number | boolean | null;
}

export interface View {
  name: string;
  title: string;
  of: string;
  reading: string;
  caution: string;
  options: Option[];
  /** Whether the input can be typed; otherwise it is named as a dev example of the run, such as `#3`. */
  typed: boolean;
  /** Whether it takes texts of the user's, one a line. */
  lines?: boolean;
  /** The question it helps to answer: a key of `About.questions`, or `compare`. */
  question: string;
}

export interface Shape {
  kind: 'rect' | 'text' | 'path' | 'dot' | 'image';
  role: string;
  x?: number;
  y?: number;
  width?: number;
  height?: number;
  radius?: number;
  text?: string;
  size?: number;
  anchor?: 'start' | 'middle' | 'end';
  angle?: number;
  bold?: boolean;
  points?: [number, number][];
  filled?: boolean;
  dashed?: boolean;
  opacity?: number;
  /** Parts of a text, each with a role of its own. */
  spans?: [string, string][];
  title?: string;
  data?: Record<string, string>;
  /** An image's pixels as a PNG in base 64; `dark` where they differ in the dark theme. */
  png?: string;
  dark?: string;
}

export interface Picture {
  run: string;
  title: string;
  description: string;
  width: number;
  height: number;
  shapes: Shape[];
  reading: string;
  caution: string;
  notes: string[];
  table: { head: string[]; rows: string[][] };
  code: string;
  grid: { rows?: string[]; columns?: string[] };
}

/** Why one of several runs has no such picture. */
export interface Absent {
  run: string;
  error: string;
}

export interface Estimate {
  value: number;
  low: number;
  high: number;
  p?: number;
}

/** Runs on the same examples; `rows` are what `anaphora compare` prints, `measures` the numbers behind them. */
export interface Comparison {
  heading: string;
  names: string[];
  rows: string[][];
  measures: { name: string; more_is_better: boolean; estimates: Estimate[]; differences: (Estimate | null)[] }[];
  disagreements: { number: number; input: string; reference: string; outputs: string[] }[];
  notes: string[];
}

export interface Drawn {
  view: string;
  pictures: (Picture | Absent)[];
  missing: Record<string, string>;
  comparison?: Comparison;
}

export type Colours = Record<string, string>;

export interface About {
  version: string;
  light: Colours;
  dark: Colours;
  questions: Record<string, string>;
}

export interface Answer {
  kind: 'classes' | 'tags' | 'text' | 'transcript' | 'next' | 'forecast' | 'number' | 'none';
  names?: string[];
  probabilities?: number[];
  tags?: { place: string; tag: string; p: number }[];
  text?: string;
  pieces?: { piece: string; p: number }[];
  log_p?: number;
  outputs?: { text: string; score: number; log_p: number }[];
  words?: { word: string; start: number; end: number; confidence: number | null }[];
  history?: (number | null)[][];
  mean?: (number | null)[][];
  low?: (number | null)[][];
  high?: (number | null)[][];
}

/** What the answer rests on; `tokens` is null where the input is no row of symbols. */
export interface Rests {
  tokens: string[] | null;
  methods: Record<string, number[]>;
  outputs?: boolean;
  output?: number | null;
  of?: string;
  without?: string;
  value?: number;
  baseline?: number;
  error?: number;
}

export interface Explanation {
  run: string;
  text: string;
  kind: 'text' | 'numbers' | 'file';
  example: number | null;
  examples: number | null;
  reference: string;
  answer: Answer;
  input: Rests | null;
  code: string;
  difference: number | null;
  picture: Picture | null;
  view: string;
  drawn: Picture | null;
}

/** A sentence from the server about what cannot be done. */
export class Refused extends Error {}

/** The server did not answer at all. */
export class Gone extends Error {}

let token = '';
let given: string | undefined;
/** The token that was accepted last in this browser: an address of an earlier start holds an old one. */
const KEPT = 'anaphora-token';

/** What the browser keeps under that name, or keeps from now on; nothing where it may keep nothing. */
function kept(value?: string): string {
  try {
    if (value) localStorage.setItem(KEPT, value);
    return localStorage.getItem(KEPT) ?? '';
  } catch {
    return '';
  }
}

/** The token that the address holds, or the kept one where it holds none. */
export function useToken(value: string): void {
  if (value === given) return; // one that was refused stays replaced
  given = value;
  token = value || kept();
}

async function ask(path: string, signal?: AbortSignal, body?: string | ArrayBuffer): Promise<Response> {
  let answer: Response;
  const kind = typeof body === 'string' ? 'application/json' : 'application/octet-stream';
  const sent = body === undefined ? {} : { method: 'POST', body };
  const used = token;
  const headers = { 'X-Anaphora-Token': used, ...(body === undefined ? {} : { 'Content-Type': kind }) };
  try {
    answer = await fetch(path, { headers, signal: signal ?? null, ...sent });
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new Gone('the server does not answer');
  }
  if (answer.ok) {
    kept(used);
    return answer;
  }
  const other = answer.status === 401 ? kept() : '';
  if (other && other !== used) {
    token = other;
    return ask(path, signal, body);
  }
  let sentence = `the server answered ${answer.status}`;
  try {
    sentence = String(((await answer.json()) as { error: string }).error);
  } catch {
    // an answer without a sentence: its number has to do
  }
  throw new Refused(sentence);
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return (await (await ask(path, signal)).json()) as T;
}

/** Ask for something to be done; bytes are sent as they are, anything else as JSON. */
export async function post<T>(path: string, body: unknown): Promise<T> {
  return (await (await ask(path, undefined, body instanceof ArrayBuffer ? body : JSON.stringify(body))).json()) as T;
}

export async function download(path: string, name: string): Promise<void> {
  const blob = await (await ask(path)).blob();
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** Calls `changed` with the ids of runs whose journals grew, until the stream ends. */
export async function watch(changed: (ids: string[]) => void, ready: () => void, signal: AbortSignal): Promise<void> {
  const answer = await ask('/api/watch', signal);
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Gone('the stream ended');
    rest += value;
    const events = rest.split('\n\n');
    rest = events.pop() ?? '';
    for (const event of events) {
      if (event.startsWith('event: ready')) ready();
      const data = /^event: changed\ndata: (.*)$/m.exec(event);
      if (data) changed(JSON.parse(data[1]!) as string[]);
    }
  }
}
