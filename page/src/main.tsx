// The page: runs at the left, questions on top, answers and pictures below; all of it follows from the address.
import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { type About, type Drawn, Gone, type Run, type View, get, useToken, watch } from './api';
import { Compared } from './compare';
import { type Able, Controls } from './controls';
import { Explain } from './explain';
import { Film } from './film';
import { PageButtons, PAGES } from './pages';
import { PANELS } from './panels';
import { Drawing } from './picture';
import { Sidebar } from './sidebar';
import { go, place, query } from './state';
import { Studies } from './studies';

const RETRY = 1500;
/** Views that ask the server themselves. */
const OWN = ['panel', 'studies'];
/** Views that follow the film of a training. */
const FILMED = ['probe', 'vectors', 'dev', 'panel'];

function Page() {
  const at = place.value;
  useToken(at.token);
  const [about, setAbout] = useState<About | null>(null);
  const [views, setViews] = useState<View[]>([]);
  const [runs, setRuns] = useState<Run[]>([]);
  const [drawn, setDrawn] = useState<Drawn | null>(null);
  const [able, setAble] = useState<Able | null>(null);
  const [problem, setProblem] = useState('');
  const [hint, setHint] = useState('');
  const [lost, setLost] = useState(false);
  const [busy, setBusy] = useState(false);
  const [tick, setTick] = useState(0);
  const [width, setWidth] = useState(0);
  const help = useRef<HTMLDialogElement>(null);
  const main = useRef<HTMLElement>(null);

  const dark = at.theme ? at.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  useEffect(() => void (document.documentElement.dataset['theme'] = dark ? 'dark' : 'light'), [dark]);

  // pictures are asked for as wide as there is room, in steps, so that a window's last pixels change nothing
  useEffect(() => {
    let timer = 0;
    const measure = () => {
      const style = getComputedStyle(main.current!);
      const inner = main.current!.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 4;
      setWidth(Math.max(280, Math.floor(inner / 20) * 20));
    };
    measure();
    const watcher = new ResizeObserver(() => {
      clearTimeout(timer);
      timer = window.setTimeout(measure, 150);
    });
    watcher.observe(main.current!);
    return () => watcher.disconnect();
  }, []);

  // what there is, again and again until the server answers; then a stream that says what changed
  useEffect(() => {
    const stop = new AbortController();
    async function follow(): Promise<void> {
      while (!stop.signal.aborted) {
        try {
          // all at once: a page that knows the views but not yet the runs would say that there are none
          const [about, views, runs] = await Promise.all([
            get<About>('/api/about', stop.signal),
            get<View[]>('/api/views', stop.signal),
            get<Run[]>('/api/runs', stop.signal),
          ]);
          setAbout(about);
          setViews(views);
          setRuns(runs);
          setLost(false);
          await watch(() => setTick((n) => n + 1), () => setTick((n) => n + 1), stop.signal);
        } catch (error) {
          if (stop.signal.aborted) return;
          setLost(error instanceof Gone);
          if (!(error instanceof Gone)) setProblem((error as Error).message);
          await new Promise((done) => setTimeout(done, RETRY));
        }
      }
    }
    void follow();
    return () => stop.abort();
  }, [at.token]);

  useEffect(() => {
    if (!tick) return;
    get<Run[]>('/api/runs').then(setRuns, () => undefined);
  }, [tick]);

  // which views the first run can give
  const first = at.runs[0];
  useEffect(() => {
    setAble(null);
    if (!first || !runs.length) return;
    const stop = new AbortController();
    // one question is answered at a time: what is looked at comes first
    const timer = setTimeout(() => get<Able>(`/api/able?run=${first}`, stop.signal).then(setAble, () => stop.signal.aborted || setAble({})), 600);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [first, runs.length === 0]);

  // a view that the run cannot give does not stay open: the tab was another run's
  const [left, setLeft] = useState('');
  useEffect(() => setLeft(''), [first]);
  useEffect(() => {
    const reason = able?.[at.view];
    if (!reason || at.runs.length > 1) return;
    setLeft(`${at.view} is not of this run: ${reason}`);
    setProblem('');
    go({ view: 'explain' });
  }, [able, at.view]);

  const view = views.find((one) => one.name === at.view);
  const Other = PAGES[at.view]?.Part;
  const Panel = view?.of === 'panel' ? PANELS[view.name] : undefined;
  const live = view?.of === 'history' ? tick : 0;
  const asked = query(at, view, width);
  useEffect(() => {
    setHint('');
    if (!at.runs.length) {
      setDrawn(null);
      setHint(runs.length ? 'Choose a run at the left.' : '');
      return;
    }
    if (!view || !width) return;
    if (OWN.includes(view.of)) {
      // it asks for itself
      setDrawn(null);
      return;
    }
    if (view.of === 'compare' && at.runs.length < 2) {
      setDrawn(null);
      setHint('Choose two or more runs of one task at the left: tick their boxes.');
      return;
    }
    if (view.of === 'probe' && !at.text.trim()) {
      // nothing was typed yet: the first dev example stands in the box
      const stop = new AbortController();
      get<{ text: string }>(`/api/example?run=${first}&example=${at.example || 1}`, stop.signal).then(
        (found) => go({ text: found.text }),
        (error: Error) => {
          if (stop.signal.aborted) return;
          setDrawn(null);
          setHint(view.typed ? 'Type a text to look at.' : 'Name a dev example to look at, such as #1.');
          if (!(error instanceof Gone)) setProblem(error.message);
        },
      );
      return () => stop.abort();
    }
    const stop = new AbortController();
    setBusy(true);
    get<Drawn>(`/api/${view.of === 'compare' ? 'compare' : 'picture'}?${asked}`, stop.signal)
      .then((found) => {
        setDrawn(found);
        setProblem('');
        setLost(false);
      })
      .catch((error: Error) => {
        if (stop.signal.aborted) return;
        if (error instanceof Gone) setLost(true);
        else {
          setDrawn(null);
          setProblem(error.message);
        }
      })
      .finally(() => stop.signal.aborted || setBusy(false));
    return () => stop.abort();
  }, [asked, view?.name, live, runs.length === 0, width === 0]);
  useEffect(() => setProblem(''), [at.view, first]);

  // with one run, or with none chosen, the first that can be read is looked at
  useEffect(() => {
    if (place.value.runs.length || !runs.length) return;
    const one = [...runs].sort((a, b) => b.changed - a.changed).find((run) => run.trained && !run.broken) ?? (runs.length === 1 ? runs[0] : undefined);
    if (one) go({ runs: [one.id] });
  }, [runs]);

  useEffect(() => {
    function keys(event: KeyboardEvent): void {
      const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement || event.target instanceof HTMLSelectElement;
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key === '?') help.current?.showModal();
      const goal = { '/': '#search', i: '#input, main textarea' }[event.key];
      const found = goal && document.querySelector<HTMLElement>(goal);
      if (!found) return;
      event.preventDefault();
      found.focus();
    }
    addEventListener('keydown', keys);
    return () => removeEventListener('keydown', keys);
  }, []);

  const colours = about ? (dark ? about.dark : about.light) : null;
  const run = runs.find((one) => one.id === first);
  return (
    <>
      <header>
        <h1>Anaphora studio</h1>
        <span class="muted where">{run ? [run.name, run.task, run.model].filter(Boolean).join(' · ') : about?.version}</span>
        <span class="space" />
        <span class="muted" role="status">
          {busy ? 'drawing …' : ''}
        </span>
        <PageButtons />
        <button type="button" onClick={() => go({ theme: dark ? 'light' : 'dark' })}>
          {dark ? 'Light' : 'Dark'}
        </button>
        <button type="button" onClick={() => help.current?.showModal()}>
          Keys <kbd>?</kbd>
        </button>
      </header>
      {lost && (
        <div class="banner" role="alert">
          The server does not answer. The page goes on by itself when it is back; start it with `anaphora studio`.
        </div>
      )}
      <Sidebar runs={runs} />
      <main aria-busy={busy} ref={main}>
        {Other && <Other runs={runs} />}
        {about && runs.length === 0 && !problem && !Other && <Welcome />}
        {about && runs.length > 0 && !Other && <Controls views={views} questions={about.questions} able={able} />}
        {first && (at.view === 'explain' || FILMED.includes(view?.of ?? '')) && <Film key={first} run={first} tick={tick} />}
        {hint && !Other && (
          <p class="muted" role="status">
            {hint}
          </p>
        )}
        {left && at.view === 'explain' && !Other && (
          <p class="muted left" role="status">
            {left}
          </p>
        )}
        {problem && (able || Other || !first) && (
          <p class="problem" role="status">
            {problem}
          </p>
        )}
        {colours && first && at.view === 'explain' && <Explain key={first} colours={colours} width={width} />}
        {colours && first && Panel && <Panel key={first} colours={colours} width={width} />}
        {colours && view?.of === 'studies' && <Studies colours={colours} width={width} />}
        {view && drawn?.view === at.view && drawn.comparison && <Compared found={drawn.comparison} view={view} />}
        {colours &&
          drawn?.view === at.view &&
          drawn.pictures.map((picture, i) =>
            'error' in picture ? (
              <section class="picture" key={picture.run}>
                <h2>{picture.run}</h2>
                <p class="problem">{picture.error}</p>
              </section>
            ) : (
              <Drawing key={picture.run} picture={picture} colours={colours} number={i} several={drawn.pictures.length > 1} asked={asked} view={at.view} />
            ),
          )}
      </main>
      <dialog ref={help} aria-label="Keys">
        <h2>Keys</h2>
        <p>
          <kbd>Tab</kbd> moves to a picture; <kbd>←</kbd> <kbd>→</kbd> <kbd>↑</kbd> <kbd>↓</kbd> move from value to value in it, and from tab to
          tab or run to run; <kbd>Enter</kbd> opens what can be opened and sends a text; <kbd>Esc</kbd> leaves a picture. <kbd>/</kbd> searches
          runs, <kbd>i</kbd> goes to the input, <kbd>?</kbd> shows this. The address holds everything that is seen: keep it to come back.
        </p>
        <form method="dialog">
          <button type="submit">Close</button>
        </form>
      </dialog>
    </>
  );
}

function Welcome() {
  return (
    <section class="welcome">
      <h2>There is no run here yet</h2>
      <p>Two minutes make one, and it appears here by itself:</p>
      <pre tabIndex={0}>anaphora demo</pre>
      <p class="muted">Or train on your own data: `anaphora train classify reviews.csv -o runs/reviews`.</p>
    </section>
  );
}

render(<Page />, document.getElementById('page')!);
