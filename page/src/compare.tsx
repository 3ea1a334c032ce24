// Runs on the same examples: the table that `anaphora compare` prints, intervals drawn on one scale, and where runs disagree.
import type { Comparison, Estimate, View } from './api';
import { go, place } from './state';

const WIDTH = 120;
const ROOM = 6;

export function Compared({ found, view }: { found: Comparison; view: View }) {
  const measures = new Map(found.measures.map((one) => [one.name, one]));
  let last = '';
  return (
    <section class="picture" aria-label={view.title}>
      <p class="muted">{found.heading}.</p>
      <div class="compared" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <td />
              {found.names.map((name, i) => (
                <th scope="col" key={i}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {found.rows.slice(1).map((row, r) => {
              const name = row[0]!.replace(/ [↑↓]$/, '');
              const measure = measures.get(name);
              if (measure) last = name;
              const differs = name.trim() === 'difference' ? measures.get(last) : undefined;
              return (
                <tr key={r}>
                  <th scope="row">{row[0]!.trim()}</th>
                  {row.slice(1).map((cell, c) => (
                    <td key={c} {...exact(measure?.estimates[c] ?? differs?.differences[c])}>
                      {cell}
                      {measure && <Interval one={measure.estimates[c]!} all={measure.estimates} />}
                    </td>
                  ))}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {found.notes.map((note) => (
        <p class="caution" key={note}>
          {note}.
        </p>
      ))}
      {found.disagreements.length > 0 && <Examples found={found} />}
      <p class="muted">{view.reading}</p>
      <p class="caution">{view.caution}</p>
    </section>
  );
}

/** All digits of the numbers in a cell, as `anaphora compare --json` gives them. */
function exact(one: Estimate | null | undefined): { title?: string } {
  if (!one) return {};
  const numbers = [one.value, one.low, one.high, ...(one.p === undefined ? [] : [one.p])];
  return { title: numbers.join(' ') };
}

function Interval({ one, all }: { one: Estimate; all: Estimate[] }) {
  const low = Math.min(...all.map((other) => other.low));
  const span = Math.max(...all.map((other) => other.high)) - low || 1;
  const at = (value: number) => ROOM + ((value - low) / span) * (WIDTH - 2 * ROOM);
  return (
    <svg width={WIDTH} height={10} aria-hidden="true">
      <line x1={at(one.low)} x2={at(one.high)} y1={5} y2={5} />
      <circle cx={at(one.value)} cy={5} r={3.5} />
    </svg>
  );
}

/** Open dev example `number` with run `i` of those that are compared; the others stay ticked. */
function explain(i: number, number: number): void {
  const runs = place.value.runs;
  const chosen = runs[i];
  if (chosen) go({ view: 'explain', runs: [chosen, ...runs.filter((run) => run !== chosen)], text: '', target: '', example: String(number) });
}

function Examples({ found }: { found: Comparison }) {
  return (
    <>
      <h2>The runs disagree most on</h2>
      <div class="compared examples" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">example</th>
              <th scope="col">wanted</th>
              {found.names.map((name, i) => (
                <th scope="col" key={i}>
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {found.disagreements.map((one) => (
              <tr key={one.number}>
                <th scope="row">
                  {one.number}: {one.input}
                </th>
                <td>{one.reference}</td>
                {one.outputs.map((output, i) => (
                  <td key={i}>
                    <button type="button" class="link" title={`Explain what ${found.names[i]} answered`} onClick={() => explain(i, one.number)}>
                      {output || '(nothing)'}
                    </button>
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}
