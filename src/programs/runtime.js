import { existsSync } from 'node:fs';
import * as nodeModule from 'node:module';
import { fileURLToPath } from 'node:url';
import { setFlagsFromString } from 'node:v8';

// Plain JavaScript, like the files that import this one: an older Node must run it to report that it is too old.

// False in an installed package, which has JavaScript: Node runs no TypeScript under node_modules.
const isSource = existsSync(new URL('./cli.ts', import.meta.url));

/** True if this Node runs TypeScript files without a flag: 22.18 or newer. */
export function runsTypeScript() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  return major > 22 || (major === 22 && minor >= 18);
}

/** True if this Node can run a gateway: 24.7 or newer, which has the Argon2 that passwords are hashed with. */
export function runsGateway() {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  return major > 24 || (major === 24 && minor >= 7);
}

/**
 * Makes V8's baseline compiler run on the main thread, which costs little. V8 compiles in threads, and at exit Node
 * waits for each thread. A thread that needs room for its code waits for a garbage collection, which only the main
 * thread does (nodejs/node#54918): one in fifty gateways that ended soon after their start hung, all in the baseline
 * compiler.
 */
export function compileWhereExitsDoNotWait() {
  // Older versions of Node do not run the baseline compiler in threads.
  if (!runsGateway()) return;
  setFlagsFromString('--no-concurrent-sparkplug');
}

const sources = new URL('../', import.meta.url).href;

/**
 * Returns the URL of a TypeScript file of src that a file of src imports; null for all other imports. Node's own search
 * reads package.json and asks the file system for each of 5,000 imports, which takes a fifth of a gateway's start.
 * @param {string} specifier
 * @param {string | undefined} parentUrl
 */
function sourceUrl(specifier, parentUrl) {
  if (!isSource || !specifier.endsWith('.ts') || !parentUrl?.startsWith(sources)) return null;
  const url = specifier.startsWith('#') ? new URL(specifier.slice(1), sources) : new URL(specifier, parentUrl);
  return url.href;
}

/** Prepares Node for the product; must be called before the first TypeScript file is imported. */
export function prepareRuntime() {
  compileWhereExitsDoNotWait();
  // The ES modules of drizzle-orm import each other in circles: linking them takes 1.5 s and permanently adds 120 MB to
  // the heap. The CommonJS files of drizzle-orm are the same code and take a tenth of that.
  const drizzleConditions = ['node', 'require', 'default'];
  /** @type {Map<string, nodeModule.ResolveFnOutput>} */
  const packages = new Map();
  nodeModule.registerHooks({
    resolve(specifier, context, nextResolve) {
      const url = sourceUrl(specifier, context.parentURL);
      if (url !== null) return { url, format: 'module-typescript', shortCircuit: true };
      if (!isSource && /^\.\/[\w-]+\.ts$/.test(specifier)) return nextResolve(specifier.replace(/ts$/, 'js'), context);
      // All files of src find the same packages. Node would read a package.json for each import.
      const isShared = context.conditions.includes('import') && context.parentURL?.startsWith(sources) === true;
      const known = isShared ? packages.get(specifier) : undefined;
      if (known !== undefined) return known;
      const isDrizzle = /^drizzle-orm(?:\/|$)/.test(specifier);
      const found = nextResolve(specifier, isDrizzle ? { ...context, conditions: drizzleConditions } : context);
      if (isShared && !specifier.startsWith('.')) packages.set(specifier, { ...found, shortCircuit: true });
      return found;
    },
  });
  // Compiled code is cached beside the packages, where only the user who installed them can write: the next start is
  // faster and does not load the TypeScript parser. Everything works without the cache if the folder is read-only.
  nodeModule.enableCompileCache(fileURLToPath(new URL('../../node_modules/.cache/node', import.meta.url)));
}
