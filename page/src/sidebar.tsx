// The list of runs: which are looked at, how they stand, and which are training now.
import type { Run } from './api';
import { go, place } from './state';

export function Sidebar({ runs }: { runs: Run[] }) {
  const chosen = place.value.runs;
  function choose(id: string, on: boolean): void {
    go({ runs: on ? [...chosen, id] : chosen.filter((other) => other !== id) });
  }
  return (
    <nav class="runs" aria-label="Runs">
      <h2>
        {runs.length} {runs.length === 1 ? 'run' : 'runs'}
      </h2>
      {runs.length === 0 && <p class="muted">There is none here yet: `anaphora train … -o runs/NAME` makes one, and it appears by itself.</p>}
      {runs.map((run) => (
        <label class="run" key={run.id}>
          <input
            type="checkbox"
            checked={chosen.includes(run.id)}
            onChange={(event) => choose(run.id, event.currentTarget.checked)}
          />
          <span class="name">{run.name}</span>
          <span class="facts">
            {[run.task, run.model].filter(Boolean).join(' · ')} {run.training && <span class="live">training</span>}
            {run.broken && <span class="broken">broken</span>}
            <br />
            {run.broken || standing(run)}
          </span>
        </label>
      ))}
    </nav>
  );
}

function standing(run: Run): string {
  const measures = Object.entries(run.measures)
    .slice(0, 3)
    .map(([name, value]) => `${name} ${Number(value).toPrecision(4)}`);
  const step = run.step === null ? '' : `step ${run.step}${run.steps ? ` of ${run.steps}` : ''}`;
  return [step, ...measures].filter(Boolean).join(', ') || (run.trained ? 'trained' : 'nothing measured yet');
}
