// The lessons of docs/learn: text, code and what it prints. The text is drawn element by element, so nothing in it can run.
import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { get } from './api';
import { go, place } from './state';

interface Listed {
  number: number;
  title: string;
}

interface Lesson extends Listed {
  command: string;
  blocks: { kind: string; text: string; output: string | null }[];
}

export function Lessons() {
  const [listed, setListed] = useState<Listed[]>([]);
  const [lesson, setLesson] = useState<Lesson | null>(null);
  const [problem, setProblem] = useState('');
  const chosen = place.value.example;
  useEffect(() => void get<Listed[]>('/api/lessons').then(setListed, (error: Error) => setProblem(error.message)), []);
  useEffect(() => {
    setLesson(null);
    if (!chosen) return;
    const stop = new AbortController();
    get<Lesson>(`/api/lesson?number=${encodeURIComponent(chosen)}`, stop.signal).then(
      (found) => {
        setLesson(found);
        setProblem('');
      },
      (error: Error) => stop.signal.aborted || setProblem(error.message),
    );
    return () => stop.abort();
  }, [chosen]);
  return (
    <section class="lessons" aria-label="Lessons">
      <label>
        lesson{' '}
        <select value={chosen} onChange={(event) => go({ example: event.currentTarget.value })}>
          <option value="">choose one</option>
          {listed.map((one) => (
            <option value={String(one.number)} key={one.number}>
              {one.number}. {one.title}
            </option>
          ))}
        </select>
      </label>
      {problem && <p class="problem">{problem}</p>}
      {!lesson && !chosen && <p class="muted">Each lesson is a page that is also a program, with exercises that are checked.</p>}
      {lesson && (
        <article>
          <p class="muted">
            The same in a terminal: <code>{lesson.command}</code>
          </p>
          {lesson.blocks.map((block, i) =>
            block.kind === 'markdown' ? (
              <Text key={i} source={block.text} />
            ) : (
              <figure key={i}>
                <pre tabIndex={0}>{block.text}</pre>
                {block.output !== null && (
                  <pre tabIndex={0} class="output">
                    {block.output}
                  </pre>
                )}
              </figure>
            ),
          )}
        </article>
      )}
    </section>
  );
}

/** Headings, paragraphs, lists, tables and fences of Markdown. */
function Text({ source }: { source: string }) {
  const parts: ComponentChildren[] = [];
  const lines = source.split('\n');
  for (let i = 0; i < lines.length; ) {
    const line = lines[i]!;
    const head = /^(#{1,4}) (.*)$/.exec(line);
    if (!line.trim()) i++;
    else if (line.startsWith('```')) {
      const end = lines.indexOf('```', i + 1);
      const stop = end < 0 ? lines.length : end;
      parts.push(<pre tabIndex={0}>{lines.slice(i + 1, stop).join('\n')}</pre>);
      i = stop + 1;
    } else if (head) {
      parts.push(head[1]!.length === 1 ? <h2 class="title">{inline(head[2]!)}</h2> : <h3>{inline(head[2]!)}</h3>);
      i++;
    } else {
      const kind = kindOf(line);
      let stop = i + 1;
      while (stop < lines.length && lines[stop]!.trim() && (kind ? kindOf(lines[stop]!) === kind || /^\s/.test(lines[stop]!) : !kindOf(lines[stop]!) && !/^(#|```)/.test(lines[stop]!))) stop++;
      const some = lines.slice(i, stop);
      if (kind === 'table') parts.push(<Table rows={some} />);
      else if (kind) {
        const items = some.map((one) => <li>{inline(one.replace(/^\s*([-*]|\d+\.) /, ''))}</li>);
        parts.push(kind === 'list' ? <ul>{items}</ul> : <ol>{items}</ol>);
      } else parts.push(<p>{inline(some.join(' '))}</p>);
      i = stop;
    }
  }
  return <>{parts}</>;
}

function kindOf(line: string): string {
  return /^[-*] /.test(line) ? 'list' : /^\d+\. /.test(line) ? 'numbers' : line.startsWith('|') ? 'table' : '';
}

function Table({ rows }: { rows: string[] }) {
  const cells = rows.filter((row) => !/^[|\s:-]+$/.test(row)).map((row) => row.replace(/^\||\|$/g, '').split('|'));
  return (
    <div class="numbers" tabIndex={0}>
      <table>
        <tbody>
          {cells.map((row, r) => (
            <tr key={r}>{row.map((cell, c) => (r ? <td key={c}>{inline(cell.trim())}</td> : <th scope="col" key={c}>{inline(cell.trim())}</th>))}</tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Code, bold, slanted text and links; a link to another lesson opens it here, others are named. */
function inline(text: string): ComponentChildren[] {
  const found: ComponentChildren[] = [];
  const pattern = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*]+)\*|!?\[([^\]]*)\]\(([^)]*)\)/g;
  let last = 0;
  for (let match = pattern.exec(text); match; match = pattern.exec(text)) {
    found.push(text.slice(last, match.index));
    last = match.index + match[0].length;
    const lesson = /^(\d\d)-[a-z-]+\.md/.exec(match[5] ?? '');
    if (match[1]) found.push(<code>{match[1]}</code>);
    else if (match[2]) found.push(<strong>{inline(match[2])}</strong>);
    else if (match[3]) found.push(<em>{inline(match[3])}</em>);
    else if (lesson)
      found.push(
        <button type="button" class="link" onClick={() => go({ example: String(Number(lesson[1])) })}>
          {match[4]}
        </button>,
      );
    else found.push(match[4]);
  }
  found.push(text.slice(last));
  return found;
}
