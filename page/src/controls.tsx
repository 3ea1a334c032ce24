// Which view, of which text, with which options.
import type { Option, View } from './api';
import { go, place } from './state';

const GROUPS: [string, View['of']][] = [
  ['Training', 'history'],
  ['One input', 'probe'],
  ['Symbols', 'vectors'],
  ['Runs', 'compare'],
];

export function Controls({ views, missing }: { views: View[]; missing: Record<string, string> }) {
  const at = place.value;
  const view = views.find((one) => one.name === at.view);
  return (
    <>
      <div class="views" role="tablist" aria-label="Views">
        {GROUPS.flatMap(([title, of]) =>
          views
            .filter((one) => one.of === of)
            .map((one) => (
              <button
                type="button"
                role="tab"
                key={one.name}
                aria-selected={one.name === at.view}
                class={missing[one.name] ? 'dim' : ''}
                title={missing[one.name] ?? `${title}: ${one.title}`}
                onClick={() => go({ view: one.name, text: at.text || (one.typed ? '' : '#1'), options: probeOnly(at.options) })}
              >
                {one.name}
              </button>
            )),
        )}
      </div>
      {view && (
        <form onSubmit={(event) => event.preventDefault()}>
          {view.of === 'probe' && <Texts typed={view.typed} />}
          {view.of === 'probe' && <Field name="p.beam" label="beam" kind="int" hint="5" />}
          {view.options.map((option) => (
            <Choice key={option.name} option={option} />
          ))}
        </form>
      )}
    </>
  );
}

function probeOnly(options: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(options).filter(([key]) => key.startsWith('p.')));
}

function Texts({ typed }: { typed: boolean }) {
  const at = place.value;
  const example = /^\s*#(\d+)/.exec(at.text);
  return (
    <>
      {example && <Steps number={Number(example[1])} />}
      <label class="wide">
        {typed ? 'text to look at (of sounds, pictures and vectors: #3, a dev example)' : 'dev example to look at, such as #3'}
        <textarea rows={1} value={at.text} onChange={(event) => go({ text: event.currentTarget.value })} />
      </label>
      <label class="wide">
        output to force (empty: the model's own)
        <textarea rows={1} value={at.target} onChange={(event) => go({ target: event.currentTarget.value })} />
      </label>
    </>
  );
}

/** The dev example before and after this one; words beside the number belong to it alone. */
function Steps({ number }: { number: number }) {
  return (
    <span class="steps">
      <button type="button" aria-label="example before" disabled={number < 2} onClick={() => go({ text: `#${number - 1}` })}>
        ‹
      </button>
      <button type="button" aria-label="next example" onClick={() => go({ text: `#${number + 1}` })}>
        ›
      </button>
    </span>
  );
}

function Choice({ option }: { option: Option }) {
  const key = `o.${option.name}`;
  const value = place.value.options[key] ?? '';
  if (option.kind === 'bool')
    return (
      <label>
        {option.name}
        <select value={value || String(option.default)} onChange={(event) => set(key, event.currentTarget.value)}>
          <option value="true">yes</option>
          <option value="false">no</option>
        </select>
      </label>
    );
  const hint = option.default === null || option.default === '' ? 'auto' : String(option.default);
  return <Field name={key} label={option.name} kind={option.kind} hint={hint} />;
}

function Field({ name, label, kind, hint }: { name: string; label: string; kind: string; hint: string }) {
  const numeric = kind === 'int' || kind === 'float';
  return (
    <label>
      {label}
      <input
        type="text"
        inputMode={numeric ? 'decimal' : 'text'}
        size={numeric ? 6 : 14}
        placeholder={hint}
        value={place.value.options[name] ?? ''}
        onChange={(event) => set(name, event.currentTarget.value.trim())}
      />
    </label>
  );
}

function set(key: string, value: string): void {
  go({ options: { ...place.value.options, [key]: value } });
}
