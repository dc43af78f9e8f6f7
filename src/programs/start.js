import * as nodeModule from 'node:module';
import { prepareRuntime, runsGateway } from './runtime.js';

if (!runsGateway()) {
  console.error(
    `Headgate requires Node 24.7 or newer, this is ${process.versions.node}; ` +
      '"npm ci" installs Node 24, which "npm start" then uses.',
  );
  process.exit(1);
}

prepareRuntime();

await import('./main.ts');

// Writes the cache now: a gateway that is killed later cannot.
nodeModule.flushCompileCache();
