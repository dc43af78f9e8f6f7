import { enableCompileCache } from 'node:module';
import { setFlagsFromString } from 'node:v8';

// A thread that compiles may wait for the main thread while that one, at its exit, waits for it (nodejs/node#54918).
setFlagsFromString('--no-concurrent-sparkplug');

// Stripping the types of these files costs more than all else at a start; the cache keeps the result. It has to be on
// before the rest is loaded, and where it cannot be written nothing changes.
enableCompileCache();
const { main } = await import('./process.ts');
main();
