// What `anaphora study` found, drawn on the page.
import { useEffect, useState } from 'preact/hooks';
import { type Colours, type Drawn, type Picture, get } from './api';
import { set } from './controls';
import { Drawing } from './picture';
import { place } from './state';

interface Study {
  id: string;
  name: string;
  study: string;
}

export function Studies({ colours, width }: { colours: Colours; width: number }) {
  const [list, setList] = useState<Study[] | null>(null);
  const [picture, setPicture] = useState<Picture | null>(null);
  const [problem, setProblem] = useState('');
  const chosen = place.value.options['o.study'] || list?.[0]?.id || '';
  useEffect(() => {
    get<Study[]>('/api/studies').then(setList, (error: Error) => setProblem(error.message));
  }, []);
  useEffect(() => {
    setPicture(null);
    if (!chosen || !width) return;
    const stop = new AbortController();
    get<Drawn>(`/api/study?study=${chosen}&w=${width}`, stop.signal).then(
      (found) => {
        setPicture(found.pictures[0] as Picture);
        setProblem('');
      },
      (error: Error) => stop.signal.aborted || setProblem(error.message),
    );
    return () => stop.abort();
  }, [chosen, width]);
  if (list?.length === 0)
    return (
      <section class="welcome">
        <p>No finished study lies below the folders of this studio. One takes minutes:</p>
        <pre tabIndex={0}>anaphora study memory</pre>
      </section>
    );
  return (
    <>
      {list && list.length > 1 && (
        <label>
          study{' '}
          <select value={chosen} onChange={(event) => set('o.study', event.currentTarget.value)}>
            {list.map((one) => (
              <option key={one.id} value={one.id}>
                {one.name} ({one.study})
              </option>
            ))}
          </select>
        </label>
      )}
      {problem && <p class="problem">{problem}</p>}
      {picture && <Drawing picture={picture} colours={colours} number={0} several={false} asked={`study=${chosen}`} view={list?.find((one) => one.id === chosen)?.study ?? 'study'} />}
    </>
  );
}
