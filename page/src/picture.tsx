// One picture with its words: how to read it, where it can mislead, its numbers, its code, and how to keep it.
import { useState } from 'preact/hooks';
import { type Colours, type Picture, download } from './api';
import { Scene } from './scene';

const FORMS = ['svg', 'png', 'csv', 'html'];

export function Drawing({
  picture,
  colours,
  number,
  several,
  asked,
  view,
}: {
  picture: Picture;
  colours: Colours;
  number: number;
  several: boolean;
  /** The question it answers, as the server takes it, and the view it is of. */
  asked: string;
  view: string;
}) {
  const [open, setOpen] = useState('');
  const [problem, setProblem] = useState('');
  const toggle = (what: string) => setOpen(open === what ? '' : what);

  async function save(form: string): Promise<void> {
    try {
      setProblem('');
      await download(`/api/save?${asked}&form=${form}&number=${number}`, `${view}.${form}`);
    } catch (error) {
      setProblem((error as Error).message);
    }
  }

  return (
    <section class="picture" aria-label={picture.title}>
      {several && <h2>{picture.run}</h2>}
      <Scene picture={picture} colours={colours} />
      <div class="tools">
        {FORMS.map((form) => (
          <button type="button" key={form} onClick={() => void save(form)}>
            Save {form.toUpperCase()}
          </button>
        ))}
        <button type="button" aria-pressed={open === 'code'} onClick={() => toggle('code')}>
          Code
        </button>
        <button type="button" aria-pressed={open === 'numbers'} onClick={() => toggle('numbers')}>
          Numbers
        </button>
      </div>
      {problem && <p class="problem">{problem}</p>}
      {open === 'code' && <pre tabIndex={0}>{picture.code}</pre>}
      {open === 'numbers' && <Numbers picture={picture} />}
      <p class="muted">{picture.reading}</p>
      <p class="caution">{picture.caution}</p>
      {picture.notes.map((note) => (
        <p class="muted" key={note}>
          {note}
        </p>
      ))}
    </section>
  );
}

function Numbers({ picture }: { picture: Picture }) {
  return (
    <div class="numbers" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {picture.table.head.map((name, i) => (
              <th scope="col" key={i}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {picture.table.rows.map((row, r) => (
            <tr key={r}>
              {row.map((cell, c) => (c ? <td key={c}>{cell}</td> : <th scope="row" key={c}>{cell}</th>))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
