// Parts of the page that are of no run: lessons and new runs. Each has a name in the address like a view.
import type { ComponentType } from 'preact';
import type { Run } from './api';
import { Lessons } from './lessons';
import { Start } from './start';
import { go, place } from './state';

export const PAGES: Record<string, { title: string; Part: ComponentType<{ runs: Run[] }> }> = {
  start: { title: 'New run', Part: Start },
  lessons: { title: 'Lessons', Part: Lessons },
};

/** Buttons that open them, and lead back. */
export function PageButtons() {
  const at = place.value.view;
  return (
    <>
      {Object.entries(PAGES).map(([name, { title }]) => (
        <button type="button" key={name} aria-pressed={at === name} data-page={name} onClick={() => go({ view: at === name ? 'explain' : name, example: '' })}>
          {title}
        </button>
      ))}
    </>
  );
}
