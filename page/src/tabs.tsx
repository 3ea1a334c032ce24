// A row of tabs that the arrow keys walk through.
import type { ComponentChildren } from 'preact';

export interface Tab {
  name: string;
  title: string;
  hint?: string;
}

export function Tabs({ label, tabs, chosen, choose, small }: { label: string; tabs: Tab[]; chosen: string; choose: (name: string) => void; small?: boolean }) {
  function keys(event: KeyboardEvent): void {
    const steps: Record<string, number> = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 };
    const at = tabs.findIndex((tab) => tab.name === chosen);
    let next = -1;
    if (event.key in steps) next = (at + steps[event.key]! + tabs.length) % tabs.length;
    if (event.key === 'Home') next = 0;
    if (event.key === 'End') next = tabs.length - 1;
    if (next < 0) return;
    event.preventDefault();
    choose(tabs[next]!.name);
    (event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>('[role=tab]')[next]?.focus();
  }
  return (
    <div class={small ? 'tabs small' : 'tabs'} role="tablist" aria-label={label} onKeyDown={keys}>
      {tabs.map((tab, i) => (
        <button
          type="button"
          role="tab"
          key={tab.name}
          aria-selected={tab.name === chosen}
          tabIndex={tab.name === chosen || (i === 0 && !tabs.some((one) => one.name === chosen)) ? 0 : -1}
          title={tab.hint}
          data-tab={tab.name}
          onClick={() => choose(tab.name)}
        >
          {tab.title}
        </button>
      ))}
    </div>
  );
}

export function Fold({ title, children }: { title: string; children: ComponentChildren }) {
  return (
    <details class="fold">
      <summary>{title}</summary>
      {children}
    </details>
  );
}
