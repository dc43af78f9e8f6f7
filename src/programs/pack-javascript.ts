import { globSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { fileURLToPath } from 'node:url';

/**
 * Writes JavaScript beside every TypeScript file for `npm pack`, since Node runs no TypeScript under node_modules;
 * `--remove` deletes it again. Only types are removed and the names of imported files changed.
 */

const root = fileURLToPath(new URL('../..', import.meta.url));

/** File names in imports and in URLs of workers: './name.ts' and '#room/name.ts'. */
const fileNames = /(['"])((?:#|\.\/)[\w./-]+)\.ts\1/g;

const isRemoval = process.argv.includes('--remove');

for (const path of globSync('{src,engines}/**/*.ts', { cwd: root, exclude: (name) => name.endsWith('.d.ts') })) {
  if (path.endsWith('.d.ts')) continue;
  const target = `${root}/${path.replace(/\.ts$/, '.js')}`;
  if (isRemoval) {
    rmSync(target, { force: true });
    continue;
  }
  const code = stripTypeScriptTypes(readFileSync(`${root}/${path}`, 'utf8'));
  writeFileSync(target, code.replaceAll(fileNames, '$1$2.js$1'), { flag: 'wx' });
}
