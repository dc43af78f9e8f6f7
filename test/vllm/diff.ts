import { describeVllm, differencesBetween } from './description.ts';

/**
 * `npm run vllm:diff -- OLD NEW`: what is new (+) and gone (-) from one installed vLLM to another: request fields,
 * routes, metrics, environment variables and arguments. OLD and NEW are folders with `venv/bin/python` or `bin/python`.
 */

const titles = {
  fields: 'Request fields',
  routes: 'Routes',
  metrics: 'Metrics',
  environment: 'Environment variables',
  flags: 'Arguments of vllm serve',
} as const;

const [older, newer, ...more] = process.argv.slice(2);
if (older === undefined || newer === undefined || more.length > 0) {
  process.stderr.write('usage: npm run vllm:diff -- OLD NEW\n');
  process.exit(2);
}
try {
  // One after the other: each needs a gigabyte of memory.
  const before = await describeVllm(older);
  const differences = differencesBetween(before, await describeVllm(newer));
  for (const [part, title] of Object.entries(titles)) {
    const { added, gone } = differences[part as keyof typeof titles];
    const lines = [...added.map((name) => `+ ${name}`), ...gone.map((name) => `- ${name}`)];
    process.stdout.write(
      `${title}\n${lines.length === 0 ? '  no difference\n' : lines.map((line) => `  ${line}\n`).join('')}\n`,
    );
  }
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
