// The user's own texts, one a line, for views that put them among the dev inputs.
import { go, place } from './state';

export function OwnTexts() {
  return (
    <label class="wide">
      your own texts, one a line
      <textarea rows={3} value={place.value.text} onChange={(event) => go({ text: event.currentTarget.value })} />
    </label>
  );
}
