import { existsSync } from 'node:fs';
import { enableCompileCache, registerHooks } from 'node:module';
import { setFlagsFromString } from 'node:v8';

// Plain JavaScript: in an installed package the rest is that, too, because Node runs no TypeScript under node_modules.
if (!existsSync(new URL('./process.ts', import.meta.url))) {
  registerHooks({ resolve: (name, context, next) => next(name.replace(/^(\.\/.*)\.ts$/, '$1.js'), context) });
}

// A thread that compiles may wait for the main thread while that one, at its exit, waits for it (nodejs/node#54918).
setFlagsFromString('--no-concurrent-sparkplug');

// Stripping the types of these files costs more than all else at a start; the cache keeps the result. It has to be on
// before the first of them is loaded, and where it cannot be written nothing changes.
enableCompileCache();
const { main } = await import('./process.ts');
main();
