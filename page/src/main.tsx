// The page: runs at the left, views on top, pictures below; all of it follows from the address.
import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { type About, type Drawn, Gone, type Run, type View, get, useToken, watch } from './api';
import { Compared } from './compare';
import { Controls } from './controls';
import { Drawing } from './picture';
import { Sidebar } from './sidebar';
import { go, place, query } from './state';

const RETRY = 1500;

function Page() {
  const at = place.value;
  useToken(at.token);
  const [about, setAbout] = useState<About | null>(null);
  const [views, setViews] = useState<View[]>([]);
  const [runs, setRuns] = useState<Run[]>([]);
  const [drawn, setDrawn] = useState<Drawn | null>(null);
  const [problem, setProblem] = useState('');
  const [lost, setLost] = useState(false);
  const [busy, setBusy] = useState(false);
  const [tick, setTick] = useState(0);
  const help = useRef<HTMLDialogElement>(null);

  const dark = at.theme ? at.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  useEffect(() => void (document.documentElement.dataset['theme'] = dark ? 'dark' : 'light'), [dark]);

  // what there is, again and again until the server answers; then a stream that says what changed
  useEffect(() => {
    const stop = new AbortController();
    async function follow(): Promise<void> {
      while (!stop.signal.aborted) {
        try {
          setAbout(await get<About>('/api/about', stop.signal));
          setViews(await get<View[]>('/api/views', stop.signal));
          setRuns(await get<Run[]>('/api/runs', stop.signal));
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

  const view = views.find((one) => one.name === at.view);
  const live = view?.of === 'history' ? tick : 0;
  const asked = query(at);
  useEffect(() => {
    if (!view) return;
    if (!at.runs.length) {
      setDrawn(null);
      setProblem(runs.length ? 'Choose a run at the left.' : '');
      return;
    }
    if (view.of === 'compare' && at.runs.length < 2) {
      setDrawn(null);
      setProblem('Choose two or more runs of one task at the left.');
      return;
    }
    if (view.of === 'probe' && !at.text.trim()) {
      setDrawn(null);
      setProblem(view.typed ? 'Type a text to look at.' : 'Name a dev example to look at, such as #1.');
      return;
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
  }, [asked, view?.name, live, runs.length === 0]);

  // with one run there is nothing to choose
  useEffect(() => {
    if (!place.value.runs.length && runs.length === 1) go({ runs: [runs[0]!.id] });
  }, [runs]);

  useEffect(() => {
    function keys(event: KeyboardEvent): void {
      if (event.key === '?' && !(event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement))
        help.current?.showModal();
    }
    addEventListener('keydown', keys);
    return () => removeEventListener('keydown', keys);
  }, []);

  const colours = about ? (dark ? about.dark : about.light) : null;
  return (
    <>
      <header>
        <h1>Anaphora studio</h1>
        <span class="muted">{about?.version}</span>
        <span class="space" />
        <span class="muted" role="status">
          {busy ? 'drawing …' : ''}
        </span>
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
      <main aria-busy={busy}>
        <Controls views={views} missing={drawn?.missing ?? {}} />
        {problem && (
          <p class="problem" role="status">
            {problem}
          </p>
        )}
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
              <Drawing key={picture.run} picture={picture} colours={colours} number={i} several={drawn.pictures.length > 1} />
            ),
          )}
      </main>
      <dialog ref={help} aria-label="Keys">
        <h2>Keys</h2>
        <p>
          <kbd>Tab</kbd> moves to a picture; <kbd>←</kbd> <kbd>→</kbd> <kbd>↑</kbd> <kbd>↓</kbd> move from value to value in it;{' '}
          <kbd>Esc</kbd> leaves it. <kbd>?</kbd> shows this. The address holds everything that is seen: keep it to come back.
        </p>
        <form method="dialog">
          <button type="submit">Close</button>
        </form>
      </dialog>
    </>
  );
}

render(<Page />, document.getElementById('page')!);
