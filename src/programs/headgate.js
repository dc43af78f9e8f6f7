#!/usr/bin/env node
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { prepareRuntime, runsTypeScript } from './runtime.js';

/** Paths of the Node 24 that "npm ci" installs, for machines with an older Node; the second if this is a dependency. */
const places = ['../../node_modules/.bin/node', '../../../.bin/node'];
const ownNode = places.map((place) => fileURLToPath(new URL(place, import.meta.url))).find((path) => existsSync(path));

if (runsTypeScript()) {
  prepareRuntime();
  await import('./cli.ts');
} else if (ownNode !== undefined && !process.execArgv.includes('--title=headgate')) {
  // The title marks the second try: a packaged Node that is too old must not restart itself endlessly.
  const args = ['--title=headgate', fileURLToPath(import.meta.url), ...process.argv.slice(2)];
  const child = spawn(ownNode, args, { stdio: 'inherit' });
  // A terminal sends Ctrl-C to both processes: the child handles it.
  process.on('SIGINT', () => {});
  process.on('SIGTERM', () => child.kill('SIGTERM'));
  child.on('exit', (code, signal) => process.exit(code ?? (signal === 'SIGINT' ? 130 : 143)));
} else {
  process.stderr.write(
    `headgate requires Node 22.18 or newer, this is ${process.versions.node}; "npm ci" installs Node 24.\n`,
  );
  process.exit(1);
}
