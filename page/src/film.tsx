// The film of a training: a slider over the steps of which the run kept its weights; every view follows it.
import { useEffect, useRef, useState } from 'preact/hooks';
import { get } from './api';
import { go, place } from './state';

const PAUSE = 90;
const PLAY = 900;

export function Film({ run, tick }: { run: string; tick: number }) {
  const at = place.value;
  const [frames, setFrames] = useState<number[]>([]);
  const [draft, setDraft] = useState<number | null>(null);
  const [playing, setPlaying] = useState(false);
  const timer = useRef(0);

  useEffect(() => {
    const stop = new AbortController();
    get<{ frames: number[] }>(`/api/film?run=${run}`, stop.signal).then(
      (found) => setFrames(found.frames),
      () => stop.signal.aborted || setFrames([]),
    );
    return () => stop.abort();
  }, [run, tick]);

  // the last place of the slider are the weights that the run keeps
  const last = frames.length;
  const found = at.frame === '' ? last : frames.findIndex((step) => step >= Number(at.frame));
  const shown = draft ?? (found < 0 ? last : found);

  function show(index: number, at_once = false): void {
    setDraft(index);
    clearTimeout(timer.current);
    const land = () => {
      setDraft(null);
      go({ frame: index < last ? String(frames[index]) : '' });
    };
    if (at_once) land();
    else timer.current = window.setTimeout(land, PAUSE);
  }

  useEffect(() => {
    if (!playing) return;
    if (shown >= last) return setPlaying(false);
    const next = window.setTimeout(() => show(shown + 1, true), PLAY);
    return () => clearTimeout(next);
  }, [playing, shown, last]);

  if (last < 2) return null;
  const words = shown < last ? `step ${frames[shown]!.toLocaleString('en')}` : 'the weights it keeps';
  return (
    <div class="film" role="group" aria-label="Training time">
      <button
        type="button"
        aria-pressed={playing}
        onClick={() => {
          if (!playing && shown >= last) show(0, true);
          setPlaying(!playing);
        }}
      >
        {playing ? 'Stop' : 'Play the training'}
      </button>
      <input
        type="range"
        min={0}
        max={last}
        value={shown}
        aria-label="Step of the training"
        aria-valuetext={words}
        onInput={(event) => {
          setPlaying(false);
          show(Number(event.currentTarget.value));
        }}
      />
      <output data-frame={shown < last ? frames[shown] : ''}>{words}</output>
      <label class="tick">
        <input type="checkbox" checked={at.beside !== ''} onChange={(event) => go({ beside: event.currentTarget.checked ? String(frames[0]) : '' })} /> beside step {frames[0]}
      </label>
    </div>
  );
}
