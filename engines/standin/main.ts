import { enableCompileCache } from 'node:module';

// Stripping the types of these files costs more than all else at a start; the cache keeps the result. It has to be on
// before the rest is loaded, and where it cannot be written nothing changes.
enableCompileCache();
const { main } = await import('./process.ts');
main();
