// One input explained: what the model answered, how sure it was, and which parts of the input spoke for it.
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Answer, type Colours, type Explanation, type Rests, get } from './api';
import { Steps, sends, set } from './controls';
import { Drawing } from './picture';
import { explainQuery, go, place, runAt } from './state';

const PAUSE = 60;
const METHODS: Record<string, string> = { integrated_gradients: 'integrated gradients', occlusion: 'occlusion' };

export function Explain({ colours, width }: { colours: Colours; width: number }) {
  const at = place.value;
  const [found, setFound] = useState<Explanation | null>(null);
  const [problem, setProblem] = useState('');
  const [draft, setDraft] = useState<string | null>(null);
  const [method, setMethod] = useState('integrated_gradients');
  const [took, setTook] = useState(0);
  const timer = useRef(0);
  const asked = explainQuery(at, width);

  useEffect(() => {
    if (!at.runs.length || !width) return;
    const stop = new AbortController();
    const begun = performance.now();
    get<Explanation>(`/api/explain?${asked}`, stop.signal)
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
  useEffect(() => setDraft(null), [at.runs[0], at.example]);

  function type(text: string, at_once = false): void {
    setDraft(text);
    clearTimeout(timer.current);
    if (at_once) go({ text });
    else timer.current = window.setTimeout(() => go({ text }), PAUSE);
  }

  if (!found) return problem ? <p class="problem">{problem}</p> : <p class="muted">Looking …</p>;
  const rests = found.input;
  const methods = Object.keys(rests?.methods ?? {});
  const shown = methods.includes(method) ? method : methods[0];
  const file = found.kind === 'file';
  const number = Number(/^#(\d+)/.exec(found.text)?.[1] ?? found.example ?? 1);
  return (
    <section class="explain" aria-label="Explanation" data-took={took.toFixed(0)}>
      <div class="row">
        <label class="wide">
          {file ? 'dev example (and for questions, words after it)' : found.kind === 'numbers' ? 'dev example such as #3, or lines of numbers' : 'input'}
          <textarea
            id="input"
            rows={1}
            value={draft ?? found.text}
            onInput={(event) => type(event.currentTarget.value)}
            onKeyDown={(event) => sends(event, (text) => type(text, true))}
          />
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
      {problem && <p class="problem">{problem}</p>}
      <Answered answer={found.answer} reference={found.reference} rests={rests} />
      {rests && shown && rests.tokens && <Coloured rests={rests} method={shown} colours={colours} edit={found.kind === 'text' ? (text) => type(text, true) : null} />}
      {rests && methods.length > 0 && (
        <p class="muted method">
          {methods.length > 1 &&
            methods.map((name) => (
              <button type="button" key={name} aria-pressed={name === shown} onClick={() => setMethod(name)}>
                {METHODS[name]}
              </button>
            ))}{' '}
          {shown === 'occlusion'
            ? `what ${rests.of} loses when each place is ${rests.without}`
            : `${rests.of}: ${num(rests.value)} here, ${num(rests.baseline)} for an empty input; completeness error ${((rests.error ?? 0) * 100).toPrecision(2)} %`}
        </p>
      )}
      {found.drawn && <Drawing picture={found.drawn} colours={colours} number={0} several={false} asked={pictureQuery(found, 'attribution', width)} view="attribution" />}
      {found.picture && <Drawing picture={found.picture} colours={colours} number={0} several={false} asked={pictureQuery(found, found.view, width)} view={found.view} />}
      <details class="fold">
        <summary>In Python</summary>
        <pre tabIndex={0}>{found.code}</pre>
      </details>
    </section>
  );
}

function pictureQuery(found: Explanation, view: string, width: number): string {
  const words = new URLSearchParams({ view, run: runAt(place.value.runs[0]!, place.value), text: found.text, w: String(width) });
  if (place.value.target) words.set('target', place.value.target);
  return words.toString();
}

export function num(value: number | undefined): string {
  return value === undefined ? '?' : String(Number(value.toPrecision(4)));
}

function percent(p: number): string {
  return `${(100 * p).toFixed(p > 0.0995 ? 0 : 1)} %`;
}

function Answered({ answer, reference, rests }: { answer: Answer; reference: string; rests: Rests | null }) {
  return (
    <div class="answer" role="status" data-kind={answer.kind}>
      <h2>{answer.kind === 'next' ? 'What comes next' : answer.kind === 'forecast' ? 'Forecast' : 'Answer'}</h2>
      <Body answer={answer} rests={rests} />
      {reference && answer.kind !== 'forecast' && (
        <p class="muted">
          wanted: <span class="reference">{reference}</span>
        </p>
      )}
    </div>
  );
}

/** An answer; one that stands `beside` another is drawn on the scale of both. */
export function Body({ answer, rests, beside }: { answer: Answer; rests: Rests | null; beside?: Answer | undefined }) {
  if (answer.kind === 'classes' || answer.kind === 'next')
    return <Shares names={answer.names!} shares={answer.probabilities!} most={answer.kind === 'classes' ? 1 : Math.max(...answer.probabilities!, ...(beside?.probabilities ?? []))} />;
  if (answer.kind === 'tags')
    return (
      <p class="tags">
        {answer.tags!.map((one, i) => (
          <Piece key={i} chosen={rests?.output === i + 1} can={!!rests?.outputs} number={i + 1} p={one.p} title={`${one.tag}: ${percent(one.p)}`}>
            {one.place}
            <small>{one.tag}</small>
          </Piece>
        ))}
      </p>
    );
  if (answer.kind === 'text')
    return (
      <>
        <p class="said" data-text={answer.text}>
          {answer.text || '(nothing)'} <span class="muted">p = {Math.exp(answer.log_p!).toPrecision(3)}, log p = {num(answer.log_p)}</span>
        </p>
        <p class="tags">
          {answer.pieces!.map((one, i) => (
            <Piece key={i} chosen={rests?.output === i + 1} can={!!rests?.outputs} number={i + 1} p={one.p} title={`p = ${one.p.toPrecision(4)}`}>
              {spelled(one.piece)}
              <small>{percent(one.p)}</small>
            </Piece>
          ))}
        </p>
        {answer.outputs!.length > 1 && (
          <details class="fold">
            <summary>{answer.outputs!.length - 1} further outputs of the search</summary>
            <ol>
              {answer.outputs!.map((one, i) => (
                <li key={i}>
                  {one.text} <span class="muted">score {num(one.score)}, log p {num(one.log_p)}</span>
                </li>
              ))}
            </ol>
          </details>
        )}
      </>
    );
  if (answer.kind === 'transcript')
    return (
      <>
        <p class="said" data-text={answer.text}>
          {answer.text || '(silence)'}
        </p>
        <p class="tags">
          {answer.words!.map((one, i) => (
            <Piece key={i} chosen={false} can={false} number={i + 1} p={one.confidence ?? 0} title={`${one.start.toFixed(2)} to ${one.end.toFixed(2)} s`}>
              {one.word}
              <small>
                {one.start.toFixed(2)} s{one.confidence === null ? '' : `, ${percent(one.confidence)}`}
              </small>
            </Piece>
          ))}
        </p>
      </>
    );
  if (answer.kind === 'forecast') return <Ahead answer={answer} beside={beside} />;
  if (answer.kind === 'number') return <p class="said">{answer.text}</p>;
  return <p class="muted">This model gives vectors, no answer: see what lies near what under “What do its vectors say?”.</p>;
}

function Piece(props: { children: preact.ComponentChildren; chosen: boolean; can: boolean; number: number; p: number; title: string }) {
  const shade = { opacity: String(0.75 + 0.25 * Math.min(Math.max(props.p, 0), 1)) };
  if (!props.can)
    return (
      <span class="piece" title={props.title}>
        <span style={shade}>{props.children}</span>
      </span>
    );
  return (
    <button
      type="button"
      class="piece"
      title={`${props.title}; show what this one rests on`}
      aria-pressed={props.chosen}
      onClick={() => set('o.output', props.chosen ? '' : String(props.number))}
    >
      <span style={shade}>{props.children}</span>
    </button>
  );
}

/** Bars of probabilities; one of full length stands for `most`. */
function Shares({ names, shares, most }: { names: string[]; shares: number[]; most: number }) {
  return (
    <table class="shares">
      <tbody>
        {names.slice(0, 6).map((name, i) => (
          <tr key={i} data-p={shares[i]}>
            <th scope="row">{spelled(name)}</th>
            <td class="bar">
              <span style={{ width: `${(100 * shares[i]!) / (most || 1)}%` }} />
            </td>
            <td>{percent(shares[i]!)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** The end of the series and the forecast with its interval, of the first output. */
function Ahead({ answer, beside }: { answer: Answer; beside?: Answer | undefined }) {
  const past = answer.history![0]!.slice(-80);
  const [mean, low, high] = [answer.mean![0]!, answer.low![0]!, answer.high![0]!];
  const others = beside?.mean ? [...beside.mean[0]!, ...beside.low![0]!, ...beside.high![0]!] : [];
  const all = [...past, ...mean, ...low, ...high, ...others].filter((v): v is number => v !== null);
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const [width, height] = [640, 150];
  const x = (i: number) => 8 + (i / Math.max(past.length + mean.length - 1, 1)) * (width - 16);
  const y = (v: number) => height - 8 - ((v - least) / (most - least || 1)) * (height - 16);
  const line = (values: (number | null)[], from: number) =>
    values.flatMap((v, i) => (v === null ? [] : [`${x(from + i).toFixed(1)},${y(v).toFixed(1)}`])).join(' ');
  const n = past.length;
  const band = [...high.map((v, i) => `${x(n + i)},${y(v ?? 0)}`), ...low.map((v, i) => `${x(n + i)},${y(v ?? 0)}`).reverse()].join(' ');
  return (
    <>
      <svg class="ahead" viewBox={`0 0 ${width} ${height}`} role="img" aria-label={`the next ${mean.length} values: ${mean.map((v) => num(v ?? undefined)).join(', ')}`}>
        <polygon points={band} class="band" />
        <polyline points={line(past, 0)} class="past" />
        <polyline points={line(mean, n)} class="next" />
      </svg>
      <table class="steps-ahead">
        <tbody>
          <tr>
            <th scope="row">forecast</th>
            {mean.slice(0, 12).map((v, i) => (
              <td key={i}>{num(v ?? undefined)}</td>
            ))}
          </tr>
          <tr>
            <th scope="row">95 %</th>
            {mean.slice(0, 12).map((_, i) => (
              <td key={i} class="muted">
                {num(low[i] ?? undefined)} … {num(high[i] ?? undefined)}
              </td>
            ))}
          </tr>
        </tbody>
      </table>
    </>
  );
}

export function spelled(piece: string): string {
  return piece.replaceAll('▁', '\u2423').replaceAll('\n', '↵') || '∅';
}

/** The input with each symbol in the colour of what it contributes; a symbol that is clicked is left out. */
function Coloured({ rests, method, colours, edit }: { rests: Rests; method: string; colours: Colours; edit: ((text: string) => void) | null }) {
  const tokens = rests.tokens!;
  const values = rests.methods[method]!;
  const most = Math.max(...values.map(Math.abs), 1e-9);
  function without(i: number): string {
    const rest = tokens.filter((token, k) => k !== i && !/^<\/?s>$/.test(token));
    const spaced = tokens.some((token) => token.startsWith('▁'));
    return (spaced ? rest.join('').replaceAll('▁', ' ') : rest.every((token) => [...token].length === 1) ? rest.join('') : rest.join(' ')).trim();
  }
  return (
    <div class="rests" role="group" aria-label="The input, coloured by what each symbol contributes" data-tokens={tokens.join('')}>
      {tokens.map((token, i) => {
        const level = Math.round(16 + 16 * Math.max(-1, Math.min(1, values[i]! / most)));
        const strong = Math.abs(level - 16) > 9;
        const style = { background: colours[`d${level}`]!, color: strong ? colours['page']! : colours['text']! };
        const title = `${spelled(token)}: ${num(values[i])}`;
        const mark = /^<\/?s>$/.test(token);
        return edit && !mark ? (
          <button type="button" key={i} class="token" style={style} title={`${title}; click to leave it out`} data-v={values[i]} onClick={() => edit(without(i))}>
            {spelled(token)}
          </button>
        ) : (
          <span key={i} class="token" style={style} title={title} data-v={values[i]}>
            {spelled(token)}
          </span>
        );
      })}
      <span class="key" aria-hidden="true">
        <span style={{ background: colours['d4']! }} /> against <span style={{ background: colours['d28']! }} /> for the answer
      </span>
    </div>
  );
}
