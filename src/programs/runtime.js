import { existsSync } from 'node:fs';
import * as nodeModule from 'node:module';
import { fileURLToPath } from 'node:url';

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

/** To be called before the first TypeScript file is imported. */
export function prepareRuntime() {
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
