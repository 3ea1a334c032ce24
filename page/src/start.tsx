// New runs: what to train on which data, the command that does it, and, where the studio may train, the plan and the trainings.
import { useEffect, useState } from 'preact/hooks';
import { type Run, get, post } from './api';
import { place } from './state';

interface Preset {
  name: string;
  about: string;
  settings: string[];
  /** For what data it is trained where no model is named; '' for none. */
  assumed: string;
}

interface Task {
  name: string;
  about: string;
  data: string;
  default: string;
  presets: Preset[];
  corpora: { name: string; about: string }[];
}

interface Training {
  run: string;
  command: string;
  state: 'training' | 'stopping' | 'ended';
  code: number | null;
  said: string;
}

interface Starting {
  allowed: boolean;
  biggest: number;
  tasks: Task[];
  files: string[];
  trainings: Training[];
}

interface Order {
  task: string;
  data: string;
  upload: boolean;
  model: string;
  name: string;
  settings: Record<string, string>;
}

const EVERY = 1500;

export function Start({ runs }: { runs: Run[] }) {
  const [there, setThere] = useState<Starting | null>(null);
  const [order, setOrder] = useState<Order>({ task: 'classify', data: 'reviews', upload: false, model: '', name: '', settings: {} });
  const [command, setCommand] = useState('');
  const [plan, setPlan] = useState<Record<string, unknown> | null>(null);
  const [problem, setProblem] = useState('');
  const [busy, setBusy] = useState('');
  const [goOn, setGoOn] = useState('');
  const chosen = place.value.runs[0] ?? '';
  useEffect(() => {
    setGoOn('');
    if (chosen) get<{ command: string }>(`/api/resuming?run=${chosen}`).then((found) => setGoOn(found.command), () => undefined);
  }, [chosen]);

  const look = () => get<Starting>('/api/starting').then(setThere, (error: Error) => setProblem(error.message));
  useEffect(() => {
    void look();
    const timer = setInterval(() => void look(), EVERY);
    return () => clearInterval(timer);
  }, []);

  const task = there?.tasks.find((one) => one.name === order.task);
  const preset = task?.presets.find((one) => one.name === (order.model || task.default));
  const assumed = task?.presets.filter((one) => one.assumed) ?? [];
  const about =
    order.model || !assumed.length
      ? preset?.about
      : `${assumed.map((one) => `${one.name} for ${one.assumed}`).join(', ')}; ${task?.default} for a corpus, for other data, and if you fill in a setting.`;
  const name = order.name || `${order.task}-${order.data.replace(/\.[^.]*$/, '').replace(/[^A-Za-z0-9_-]+/g, '-')}`.slice(0, 60);
  const whole = { ...order, name };
  const asked = JSON.stringify(whole);
  useEffect(() => {
    setPlan(null);
    const words = new URLSearchParams({ task: whole.task, data: whole.data, upload: String(whole.upload), model: whole.model, name });
    for (const [key, value] of Object.entries(whole.settings)) if (value) words.set(`s.${key}`, value);
    const stop = new AbortController();
    get<{ command: string }>(`/api/order?${words}`, stop.signal).then(
      (found) => {
        setCommand(found.command);
        setProblem('');
      },
      (error: Error) => {
        if (stop.signal.aborted) return;
        setCommand('');
        setProblem(error.message);
      },
    );
    return () => stop.abort();
  }, [asked]);

  function change(some: Partial<Order>): void {
    setOrder({ ...order, ...some });
  }
  async function act<T>(what: string, path: string, body: unknown, then: (found: T) => void): Promise<void> {
    setBusy(what);
    setProblem('');
    try {
      then(await post<T>(path, body));
    } catch (error) {
      setProblem((error as Error).message);
    }
    setBusy('');
    void look();
  }
  async function drop(file: File | undefined): Promise<void> {
    if (!file || !there) return;
    if (file.size > there.biggest) return setProblem(`the file is larger than ${there.biggest >> 20} MiB; use the command.`);
    const named = file.name;
    await act<{ files: string[] }>('keeping the file …', `/api/upload?name=${encodeURIComponent(named)}`, await file.arrayBuffer(), () =>
      change({ data: named, upload: true, name: '' }),
    );
  }
  if (!there || !task) return <p class="muted">{problem || 'looking …'}</p>;
  const stopped = runs.find((run) => run.id === chosen);
  const living = there.trainings.some((one) => one.state !== 'ended');
  return (
    <section
      class="start"
      aria-label="New run"
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => {
        event.preventDefault();
        if (there.allowed) void drop(event.dataTransfer?.files[0]);
      }}
    >
      <form onSubmit={(event) => event.preventDefault()}>
        <label>
          task
          <select value={order.task} onChange={(event) => { const next = there.tasks.find((one) => one.name === event.currentTarget.value)!; change({ task: next.name, data: next.corpora[0]?.name ?? '', upload: false, model: '', name: '', settings: {} }); }}>
            {there.tasks.map((one) => (
              <option key={one.name}>{one.name}</option>
            ))}
          </select>
        </label>
        <label>
          data
          <select value={`${order.upload ? 'file:' : ''}${order.data}`} onChange={(event) => { const value = event.currentTarget.value; const upload = value.startsWith('file:'); change({ data: upload ? value.slice(5) : value, upload, name: '' }); }}>
            {task.corpora.map((one) => (
              <option value={one.name} key={one.name}>
                {one.name}: {one.about}
              </option>
            ))}
            {there.files.map((file) => (
              <option value={`file:${file}`} key={file}>
                your file {file}
              </option>
            ))}
          </select>
        </label>
        <label>
          model
          <select value={order.model || (assumed.length ? '' : task.default)} onChange={(event) => change({ model: event.currentTarget.value, settings: {} })}>
            {!!assumed.length && <option value="">the one that suits the data</option>}
            {task.presets.map((one) => (
              <option value={one.name} key={one.name}>
                {one.name}
              </option>
            ))}
          </select>
        </label>
        <label>
          name of the run
          <input type="text" value={order.name} placeholder={name} onInput={(event) => change({ name: event.currentTarget.value })} />
        </label>
        {there.allowed && (
          <label>
            or a file of yours
            <input type="file" onChange={(event) => void drop(event.currentTarget.files?.[0])} />
          </label>
        )}
        {(preset?.settings ?? []).map((key) => (
          <label key={key}>
            {key.replace('_', ' ')}
            <input type="text" size={6} placeholder="auto" data-setting={key} value={order.settings[key] ?? ''} onChange={(event) => change({ settings: { ...order.settings, [key]: event.currentTarget.value.trim() } })} />
          </label>
        ))}
      </form>
      <p class="muted">
        {task.about}. {about} Data: {task.data}.
      </p>
      {command && (
        <pre tabIndex={0} class="command">
          {command}
        </pre>
      )}
      {problem && (
        <p class="problem" role="status">
          {problem}
        </p>
      )}
      {there.allowed ? (
        <p class="tools">
          <button type="button" disabled={!command || !!busy} onClick={() => void act<{ plan: Record<string, unknown> }>('planning …', '/api/plan', whole, (found) => setPlan(found.plan))}>
            Plan
          </button>
          <button type="button" disabled={!command || !!busy || living} onClick={() => void act('starting …', '/api/start', whole, () => change({ name: '' }))}>
            Start
          </button>
          {stopped && (
            <button type="button" disabled={!!busy || living || stopped.training} onClick={() => void act('resuming …', '/api/resume', { run: stopped.id }, () => undefined)}>
              Resume {stopped.name}
            </button>
          )}
          <span class="muted" role="status">
            {busy}
          </span>
        </p>
      ) : (
        <p class="muted">
          This page shows the command only. Started with <code>anaphora studio --allow-training</code> it can plan, start, stop and resume runs.
        </p>
      )}
      {goOn && (
        <p class="muted">
          To go on with the chosen run: <code>{goOn}</code>
        </p>
      )}
      {plan && <Plan plan={plan} />}
      {there.trainings.map((one) => (
        <section class="training" key={one.command + one.run} data-run={one.run} data-state={one.state}>
          <h2>
            {one.run}: {one.state === 'ended' ? `ended (${one.code === 0 ? 'finished' : one.code === 143 ? 'stopped and saved' : `code ${one.code}`})` : one.state}
          </h2>
          <pre tabIndex={0}>{one.command}</pre>
          {one.said && (
            <pre tabIndex={0} class="output">
              {one.said}
            </pre>
          )}
          {one.state !== 'ended' && (
            <button type="button" onClick={() => void act('stopping …', '/api/stop', { run: one.run }, () => undefined)}>
              {one.state === 'stopping' ? 'End at once' : 'Stop'}
            </button>
          )}
        </section>
      ))}
    </section>
  );
}

/** What --dry-run says, settings apart. */
function Plan({ plan }: { plan: Record<string, unknown> }) {
  const rows = Object.entries(plan).filter(([key]) => key !== 'settings');
  return (
    <div class="numbers plan" tabIndex={0}>
      <table>
        <tbody>
          {rows.map(([key, value]) => (
            <tr key={key}>
              <th scope="row">{key.replace(/_/g, ' ')}</th>
              <td>{typeof value === 'object' ? JSON.stringify(value) : String(value)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
