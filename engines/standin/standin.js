import { existsSync } from 'node:fs';

// Plain JavaScript: an installed package has the rest as JavaScript, too, because Node runs no TypeScript there.
const isSource = existsSync(new URL('./main.ts', import.meta.url));
await import(isSource ? './main.ts' : './main.js');
