import * as nodeModule from 'node:module';
import { fileURLToPath } from 'node:url';

// Plain JavaScript on purpose: an older Node must be able to read this file to say that it is too old.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);

// From 22.18 on Node runs TypeScript files without a flag.
if (major < 22 || (major === 22 && minor < 18)) {
  console.error(
    `Headgate needs Node 22.18 or newer, this is ${process.versions.node}; ` +
      '"npm ci" brings its own Node 24, which "npm start" then uses.',
  );
  process.exit(1);
}

// The ES modules of drizzle-orm import each other in circles: linking them takes 1.5 s and leaves the heap 120 MB
// larger for good. Its CommonJS files are the same code and take a tenth of that.
nodeModule.registerHooks({
  resolve(specifier, context, nextResolve) {
    const isDrizzle = /^drizzle-orm(?:\/|$)/.test(specifier);
    return nextResolve(specifier, isDrizzle ? { ...context, conditions: ['node', 'require', 'default'] } : context);
  },
});

// Compiled code is kept beside the packages, where only who installed them can write: the next start is quicker and
// does not load the TypeScript parser. Where that folder cannot be written, everything works without it.
nodeModule.enableCompileCache(fileURLToPath(new URL('../node_modules/.cache/node', import.meta.url)));

await import('./main.ts');

// A gateway that is killed later has no other moment to write it.
nodeModule.flushCompileCache();
