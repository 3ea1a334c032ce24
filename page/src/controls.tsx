// Which question, which view, of which text, with which options.
import type { Option, View } from './api';
import { go, place } from './state';
import { Fold, Tabs } from './tabs';
import { OwnTexts } from './texts';

export type Able = Record<string, string | null>;

/** The views that help with a question and that the run can give; those it cannot give are named with the reason below. */
export function Controls({ views, questions, able }: { views: View[]; questions: Record<string, string>; able: Able | null }) {
  const at = place.value;
  const view = views.find((one) => one.name === at.view);
  const can = (one: View) => !able || !able[one.name] || one.question === 'compare';
  const question = at.view === 'explain' ? 'explain' : (view?.question ?? 'explain');
  const groups = Object.entries({ ...questions, compare: 'How do runs compare?' }).filter(
    ([name]) => name === 'explain' || views.some((one) => one.question === name && can(one)),
  );
  const here = views.filter((one) => one.question === question);
  const shown = here.filter(can);
  const absent = able ? views.filter((one) => able[one.name] && one.question !== 'compare') : [];
  const names = [...(question === 'explain' ? [{ name: 'explain', title: 'Explain' }] : []), ...shown.map((one) => ({ name: one.name, title: one.title, hint: one.name }))];
  return (
    <>
      <Tabs
        label="Questions"
        tabs={groups.map(([name, title]) => ({ name, title }))}
        chosen={question}
        choose={(name) => open(name === 'explain' ? 'explain' : (views.find((one) => one.question === name && can(one))?.name ?? 'explain'))}
      />
      {names.length > 1 && <Tabs small label="Views" tabs={names} chosen={at.view} choose={open} />}
      {view && (
        <form onSubmit={(event) => event.preventDefault()}>
          {view.of === 'probe' && <Texts typed={view.typed} />}
          {view.lines && <OwnTexts />}
          {view.of === 'probe' && ['beam', 'alignment', 'captions'].includes(view.name) && <Field name="p.beam" label="beam" kind="int" hint="5" />}
          {view.options.map((option) => (
            <Choice key={option.name} option={option} />
          ))}
        </form>
      )}
      {absent.length > 0 && (
        <Fold title={`Why not? ${absent.length} views this run cannot give`}>
          <dl class="absent">
            {absent.map((one) => (
              <div key={one.name}>
                <dt>{one.name}</dt>
                <dd>{able![one.name]}</dd>
              </div>
            ))}
          </dl>
        </Fold>
      )}
    </>
  );
}

function open(name: string): void {
  go({ view: name });
}

/** Enter sends, Shift and Enter begin a new line. */
export function sends(event: KeyboardEvent, send: (value: string) => void): void {
  if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send((event.currentTarget as HTMLTextAreaElement).value);
}

function Texts({ typed }: { typed: boolean }) {
  const at = place.value;
  const example = /^\s*#(\d+)/.exec(at.text);
  return (
    <>
      {example && <Steps number={Number(example[1])} step={(number) => go({ text: `#${number}` })} />}
      <label class="wide">
        {typed ? 'text to look at (of sounds, pictures and series: #3, a dev example)' : 'dev example to look at, such as #3'}
        <textarea
          rows={1}
          value={at.text}
          onChange={(event) => go({ text: event.currentTarget.value })}
          onKeyDown={(event) => sends(event, (text) => go({ text }))}
        />
      </label>
      <label class="wide">
        output to force (empty: the model's own)
        <textarea
          rows={1}
          value={at.target}
          onChange={(event) => go({ target: event.currentTarget.value })}
          onKeyDown={(event) => sends(event, (target) => go({ target }))}
        />
      </label>
    </>
  );
}

/** The dev example before and after this one. */
export function Steps({ number, of, step }: { number: number; of?: number | null; step: (number: number) => void }) {
  return (
    <span class="steps">
      <button type="button" aria-label="example before" disabled={number < 2} onClick={() => step(number - 1)}>
        ‹
      </button>
      {of ? (
        <span class="muted">
          example {number} of {of.toLocaleString('en')}
        </span>
      ) : null}
      <button type="button" aria-label="next example" disabled={!!of && number >= of} onClick={() => step(number + 1)}>
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

export function Field({ name, label, kind, hint }: { name: string; label: string; kind: string; hint: string }) {
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

export function set(key: string, value: string): void {
  go({ options: { ...place.value.options, [key]: value } });
}
