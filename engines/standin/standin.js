import { existsSync } from 'node:fs';
import { registerHooks } from 'node:module';

// Plain JavaScript: in an installed package the rest is that, too, because Node runs no TypeScript under node_modules.
if (!existsSync(new URL('./main.ts', import.meta.url))) {
  registerHooks({ resolve: (name, context, next) => next(name.replace(/^(\.\/.*)\.ts$/, '$1.js'), context) });
}
await import('./main.ts');
