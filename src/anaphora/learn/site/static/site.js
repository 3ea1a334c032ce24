'use strict';
// The theme is set before anything is drawn; the rest waits for the page.
const root = document.currentScript.dataset.root;
const wished = localStorage.getItem('theme');
if (wished) document.documentElement.dataset.theme = wished;

document.addEventListener('DOMContentLoaded', () => {
  const theme = document.getElementById('theme');
  const dark = () => document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === 'dark'
    : matchMedia('(prefers-color-scheme: dark)').matches;
  const label = () => { theme.textContent = dark() ? 'Light' : 'Dark'; };
  theme.addEventListener('click', () => {
    const next = dark() ? 'light' : 'dark';
    document.documentElement.dataset.theme = next;
    localStorage.setItem('theme', next);
    label();
    frames.forEach(tell);
  });
  label();

  // A picture is a page of its own: it reports how high it is, and is told which theme to use.
  const frames = [...document.querySelectorAll('figure iframe')];
  const tell = frame => frame.contentWindow.postMessage({theme: dark() ? 'dark' : 'light'}, '*');
  addEventListener('message', event => {
    const frame = frames.find(one => one.contentWindow === event.source);
    const height = event.data && event.data.height;
    if (!frame || !(height > 0 && height < 20000)) return;
    frame.style.height = `${height}px`;
    tell(frame);
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { label(); frames.forEach(tell); });

  const menu = document.getElementById('menu');
  menu.addEventListener('click', () => {
    const open = document.body.classList.toggle('menu-open');
    menu.setAttribute('aria-expanded', String(open));
  });

  const input = document.getElementById('search');
  const results = document.getElementById('results');
  let loading = null;
  // The index is a script, not JSON: pages opened from a disk may not fetch files.
  const load = () => loading ??= new Promise((done, failed) => {
    const script = document.createElement('script');
    script.src = root + 'search.js';
    script.onload = done;
    script.onerror = failed;
    document.head.append(script);
  });

  const score = (entry, words) => {
    const [, page, heading, text] = entry.lower ??= entry.map(part => part.toLowerCase());
    let sum = heading === words.join(' ') ? 20 : 0;
    for (const word of words) {
      const here = (page.includes(word) ? 6 : 0) + (heading.includes(word) ? 8 : 0)
        + Math.min(text.split(word).length - 1, 5);
      if (here === 0) return 0;
      sum += here;
    }
    return sum;
  };

  const excerpt = (text, word) => {
    const place = Math.max(0, text.toLowerCase().indexOf(word) - 60);
    return (place ? '… ' : '') + text.slice(place, place + 160) + (text.length > place + 160 ? ' …' : '');
  };

  const find = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    results.hidden = words.length === 0;
    if (!words.length) return;
    const found = window.SEARCH.map(entry => [score(entry, words), entry]).filter(([points]) => points)
      .sort((a, b) => b[0] - a[0]).slice(0, 12);
    const list = document.createElement('ul');
    for (const [, [address, page, heading, text]] of found) {
      const item = document.createElement('li');
      const link = document.createElement('a');
      link.href = root + address;
      link.textContent = heading === page ? page : `${page} › ${heading}`;
      const words_ = document.createElement('p');
      words_.textContent = excerpt(text, words[0]);
      item.append(link, words_);
      list.append(item);
    }
    const count = document.createElement('p');
    count.textContent = found.length ? `${found.length} of the best places` : 'Nothing found.';
    results.replaceChildren(count, list);
  };
  input.addEventListener('focus', () => load());
  input.addEventListener('input', () => load().then(find));
  input.addEventListener('keydown', event => {
    if (event.key === 'Escape') { input.value = ''; results.hidden = true; }
  });
  input.form.addEventListener('submit', event => {
    event.preventDefault();
    const first = results.querySelector('a');
    if (first) location.href = first.href;
  });
  document.addEventListener('keydown', event => {
    if (event.key === '/' && !/^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName)) {
      event.preventDefault();
      input.focus();
    }
  });
});
