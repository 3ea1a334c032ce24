// The list of runs: found by name, task or model, sorted, and chosen one by one or several to compare.
import { useState } from 'preact/hooks';
import type { Run } from './api';
import { go, place } from './state';

const SORTS: Record<string, (a: Run, b: Run) => number> = {
  name: (a, b) => a.name.localeCompare(b.name),
  newest: (a, b) => b.changed - a.changed,
  task: (a, b) => a.task.localeCompare(b.task) || a.name.localeCompare(b.name),
  loss: (a, b) => (a.measures['loss'] ?? Infinity) - (b.measures['loss'] ?? Infinity),
};

export function Sidebar({ runs }: { runs: Run[] }) {
  const [search, setSearch] = useState('');
  const [sort, setSort] = useState('name');
  const [task, setTask] = useState('');
  const chosen = place.value.runs;
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const tasks = [...new Set(runs.map((run) => run.task).filter(Boolean))].sort();
  const shown = runs
    .filter((run) => (!task || run.task === task) && words.every((word) => `${run.name} ${run.task} ${run.model} ${run.training ? 'training' : ''} ${run.broken ? 'broken' : ''}`.toLowerCase().includes(word)))
    .sort(SORTS[sort]);

  function only(id: string): void {
    go({ runs: [id], text: '', example: '', target: '', frame: '', beside: '' });
  }
  function choose(id: string, on: boolean): void {
    go({ runs: on ? [...chosen, id] : chosen.filter((other) => other !== id) });
  }
  function keys(event: KeyboardEvent): void {
    if (event.key !== 'ArrowDown' && event.key !== 'ArrowUp') return;
    const buttons = [...(event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>('button.name')];
    const at = buttons.indexOf(document.activeElement as HTMLElement);
    if (at < 0) return;
    event.preventDefault();
    buttons[at + (event.key === 'ArrowDown' ? 1 : -1)]?.focus();
  }
  return (
    <nav class="runs" aria-label="Runs">
      <div class="find">
        <input
          type="search"
          id="search"
          placeholder={`search ${runs.length} ${runs.length === 1 ? 'run' : 'runs'}`}
          aria-label="Search runs"
          value={search}
          onInput={(event) => setSearch(event.currentTarget.value)}
        />
        <select aria-label="Task" value={task} onChange={(event) => setTask(event.currentTarget.value)}>
          <option value="">all tasks</option>
          {tasks.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
        <select aria-label="Sort by" value={sort} onChange={(event) => setSort(event.currentTarget.value)}>
          {Object.keys(SORTS).map((name) => (
            <option value={name} key={name}>
              by {name}
            </option>
          ))}
        </select>
      </div>
      {runs.length > 0 && shown.length < runs.length && (
        <p class="muted" role="status">
          {shown.length} of {runs.length} runs
        </p>
      )}
      <div class="list" onKeyDown={keys}>
        {shown.map((run) => (
          <div class={chosen.includes(run.id) ? 'run chosen' : 'run'} key={run.id}>
            <input
              type="checkbox"
              aria-label={`look at ${run.name}`}
              title="look at several runs together"
              checked={chosen.includes(run.id)}
              onChange={(event) => choose(run.id, event.currentTarget.checked)}
            />
            <button type="button" class="name" aria-current={chosen[0] === run.id ? 'true' : undefined} onClick={() => only(run.id)}>
              {run.name}
            </button>
            <span class="facts">
              {[run.task, run.model].filter(Boolean).join(' · ')} {run.training && <span class="live">training</span>}
              {run.broken && <span class="broken">broken</span>}
              <br />
              {run.broken || standing(run)}
            </span>
          </div>
        ))}
      </div>
    </nav>
  );
}

/** What a run reached: a BLEU of nothing beside right outputs means that these have fewer than four words, and is left out. */
export function standing(run: Run): string {
  const empty = run.measures['bleu'] === 0 && (run.measures['exact_match'] ?? 0) > 0;
  const measures = Object.entries(run.measures)
    .filter(([name]) => !(name === 'bleu' && empty))
    .slice(0, 3)
    .map(([name, value]) => `${name.replace('_', ' ')} ${Number(value).toPrecision(4)}`);
  const stopped = run.ended === 'interrupted' || (run.ended === '' && !run.training && run.step !== null && run.steps !== null && run.step < run.steps);
  const step = run.step === null ? '' : `${stopped ? 'stopped at ' : ''}step ${run.step}${run.steps ? ` of ${run.steps}` : ''}`;
  return [step, ...measures].filter(Boolean).join(', ') || (run.trained ? 'trained' : 'nothing measured yet');
}
