import * as nodeModule from 'node:module';
import { prepareRuntime, runsTypeScript } from './runtime.js';

if (!runsTypeScript()) {
  console.error(
    `Headgate needs Node 22.18 or newer, this is ${process.versions.node}; ` +
      '"npm ci" brings its own Node 24, which "npm start" then uses.',
  );
  process.exit(1);
}

prepareRuntime();

await import('./main.ts');

// A gateway that is killed later has no other moment to write it.
nodeModule.flushCompileCache();
