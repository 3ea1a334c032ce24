// Builds the page into the package. The bundle names the hash of everything it was built from, so that a test can
// tell whether it is up to date without building it.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { build } from 'esbuild';

const out = '../src/anaphora/studio/static/';
const sources = [...readdirSync('src').sort().map((name) => `src/${name}`), 'build.mjs', 'package-lock.json'];
const hash = createHash('sha256');
for (const name of sources) hash.update(`${name}\n`).update(readFileSync(name)).update('\n');

await build({
  entryPoints: ['src/main.tsx'],
  bundle: true,
  minify: true,
  format: 'esm',
  target: 'es2022',
  outfile: `${out}app.js`,
  jsx: 'automatic',
  jsxImportSource: 'preact',
  banner: { js: `// built from ${hash.digest('hex')}` },
  legalComments: 'none',
});
for (const name of ['index.html', 'app.css', 'icon.svg']) writeFileSync(out + name, readFileSync(`src/${name}`));
