import { existsSync } from 'node:fs';
import * as nodeModule from 'node:module';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';

// Plain JavaScript, as what imports it: an older Node must be able to read it to say that it is too old.

// An installed package has JavaScript in the place of TypeScript, which Node does not run under node_modules.
const isSource = existsSync(new URL('./cli.ts', import.meta.url));

/** From 22.18 on Node runs TypeScript files without a flag. */
export function runsTypeScript() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  return major > 22 || (major === 22 && minor >= 18);
}

/** From 24.7 on Node has Argon2, which passwords are kept with. */
export function runsGateway() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  return major > 24 || (major === 24 && minor >= 7);
}

/**
 * V8 compiles in threads, and at exit Node waits for each of them. One that needs room for its code waits for a garbage
 * collection, which only the main thread makes (nodejs/node#54918): one in fifty gateways that ended soon after their
 * start stayed on as processes, each of them with the baseline compiler. The main thread does its work itself, which takes
 * it little.
 */
export function compileWhereExitsDoNotWait() {
  // Older ones compile nothing of it in threads.
  if (!runsGateway()) return;
  setFlagsFromString('--no-concurrent-sparkplug');
}

/** To be called before the first TypeScript file is imported. */
export function prepareRuntime() {
  compileWhereExitsDoNotWait();
  // The ES modules of drizzle-orm import each other in circles: linking them takes 1.5 s and leaves the heap 120 MB
  // larger for good. Its CommonJS files are the same code and take a tenth of that.
  nodeModule.registerHooks({
    resolve(specifier, context, nextResolve) {
      if (!isSource && /^\.\/[\w-]+\.ts$/.test(specifier)) return nextResolve(specifier.replace(/ts$/, 'js'), context);
      const isDrizzle = /^drizzle-orm(?:\/|$)/.test(specifier);
      return nextResolve(specifier, isDrizzle ? { ...context, conditions: ['node', 'require', 'default'] } : context);
    },
  });
  // Compiled code is kept beside the packages, where only who installed them can write: the next start is quicker and
  // does not load the TypeScript parser. Where that folder cannot be written, everything works without it.
  nodeModule.enableCompileCache(fileURLToPath(new URL('../../node_modules/.cache/node', import.meta.url)));
}
