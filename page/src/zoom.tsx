// Pictures that are larger than the window: drag to pan, + and − to zoom, 0 to go back.
import type { RefObject } from 'preact';
import { useEffect, useState } from 'preact/hooks';

const MOST = 8;
const LEAST = 0.1;
const STEP = 1.25;

export interface Zoom {
  factor: number;
  keys: (event: KeyboardEvent) => boolean;
  set: (factor: number) => void;
}

/** The factor by which the picture in `box` is drawn larger; the middle of what is seen stays where it is. */
export function useZoom(box: RefObject<HTMLElement | null>, picture: unknown): Zoom {
  const [factor, setFactor] = useState(1);
  useEffect(() => setFactor(1), [picture]);
  const set = (next: number) => {
    const bounded = Math.min(MOST, Math.max(LEAST, next));
    const seen = box.current;
    const ratio = bounded / factor;
    setFactor(bounded);
    if (seen) requestAnimationFrame(() => (seen.scrollLeft = (seen.scrollLeft + seen.clientWidth / 2) * ratio - seen.clientWidth / 2));
  };
  useEffect(() => {
    const here = box.current;
    if (!here) return;
    let from: { x: number; y: number; left: number; top: number } | null = null;
    const down = (event: PointerEvent) => {
      const pans = here.scrollWidth > here.clientWidth + 1 || here.scrollHeight > here.clientHeight + 1;
      from = pans && event.button === 0 ? { x: event.clientX, y: event.clientY, left: here.scrollLeft, top: here.scrollTop } : null;
    };
    const move = (event: PointerEvent) => {
      if (!from || !event.buttons) return;
      here.scrollLeft = from.left - (event.clientX - from.x);
      here.scrollTop = from.top - (event.clientY - from.y);
    };
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      set(factor * (event.deltaY < 0 ? STEP : 1 / STEP));
    };
    here.addEventListener('pointerdown', down);
    here.addEventListener('pointermove', move);
    here.addEventListener('wheel', wheel, { passive: false });
    return () => {
      here.removeEventListener('pointerdown', down);
      here.removeEventListener('pointermove', move);
      here.removeEventListener('wheel', wheel);
    };
  }, [factor, box.current]);
  const keys = (event: KeyboardEvent) => {
    if (event.key === '+' || event.key === '=') set(factor * STEP);
    else if (event.key === '-') set(factor / STEP);
    else if (event.key === '0') set(1);
    else return false;
    event.preventDefault();
    return true;
  };
  return { factor, keys, set };
}

/** The same as buttons, and one that fits the whole picture into the width. */
export function ZoomButtons({ zoom, box, width }: { zoom: Zoom; box: RefObject<HTMLElement | null>; width: number }) {
  return (
    <span class="zoom" role="group" aria-label="Zoom">
      <button type="button" aria-label="zoom out" onClick={() => zoom.set(zoom.factor / STEP)}>
        −
      </button>
      <button type="button" aria-label="zoom in" onClick={() => zoom.set(zoom.factor * STEP)}>
        +
      </button>
      <button type="button" onClick={() => zoom.set((box.current?.clientWidth ?? width) / width)}>
        fit
      </button>
    </span>
  );
}
