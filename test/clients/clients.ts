import { readFileSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { clearHome, engineFile, givenKey, makeHome, runGateway } from '#test/programs/gateway-process.ts';
import { liftLimits } from '#test/gateway.ts';
import { type Client, clients } from './list.ts';
import { type Target, tryClient } from './run.ts';
import { failuresOf, type Outcome, renderTable, replaceTable } from './table.ts';

/** `npm run clients`: the newest version of each client against a gateway. */

const usage = `npm run clients -- [--only NAME,…] [--write] [--folder PATH]
                   [--base-url URL --api-key KEY --model MODEL [--embedding-model MODEL]]

Installs the newest version of each client from npm and PyPI, runs its cases against a gateway, and prints a table of
versions and results. Without --base-url, the gateway is a new one with stand-ins; --api-key defaults to
HEADGATE_API_KEY. --write also puts the table into src/edge/inference/clients.md. --only runs some clients:
${clients
  .map(({ folder }) => folder)
  .filter((name, at, all) => all.indexOf(name) === at)
  .join(', ')}.
The default folder is ~/.cache/headgate-clients, which needs 2 GB.
`;

const chapter = new URL('../../src/edge/inference/clients.md', import.meta.url).pathname;

const options = {
  only: { type: 'string' },
  write: { type: 'boolean', default: false },
  folder: { type: 'string' },
  'base-url': { type: 'string' },
  'api-key': { type: 'string' },
  model: { type: 'string' },
  'embedding-model': { type: 'string' },
  help: { type: 'boolean', short: 'h' },
} as const;

class UsageError extends Error {}

interface Wish {
  readonly chosen: readonly Client[];
  readonly folder: string;
  readonly write: boolean;
  /** Null starts a gateway. */
  readonly target: Target | null;
}

function readWish(args: readonly string[]): Wish | null {
  const { values } = parseArgs({ args: [...args], options });
  if (values.help === true) return null;
  const names = values.only?.split(',');
  const unknown = names?.find((name) => !clients.some(({ folder }) => folder === name));
  if (unknown !== undefined) throw new UsageError(`--only: there is no client "${unknown}"`);
  if (values.write && names !== undefined) throw new UsageError('--write needs all clients, so omit --only');
  return {
    chosen: clients.filter(({ folder }) => names?.includes(folder) ?? true),
    folder: values.folder ?? join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'headgate-clients'),
    write: values.write,
    target: readTarget(values),
  };
}

function readTarget(
  values: Partial<Record<'base-url' | 'api-key' | 'model' | 'embedding-model', string>>,
): Target | null {
  const address = values['base-url']?.replace(/\/+$/, '').replace(/\/v1$/, '');
  const others = (['api-key', 'model', 'embedding-model'] as const).find((name) => values[name] !== undefined);
  if (address === undefined) {
    if (others !== undefined) throw new UsageError(`--${others} needs --base-url`);
    return null;
  }
  const apiKey = values['api-key'] ?? process.env['HEADGATE_API_KEY'];
  if (apiKey === undefined || apiKey === '') throw new UsageError('--base-url needs --api-key or HEADGATE_API_KEY');
  if (values.model === undefined) throw new UsageError('--base-url needs --model');
  return { address, apiKey, model: values.model, embeddingModel: values['embedding-model'] ?? null };
}

/** Claude Code asks for 32,000 output tokens. */
const contextLength = 131_072;

/** Runs something against a new gateway with a chat model and an embedding model. */
async function withGateway<T>(run: (target: Target) => Promise<T>): Promise<T> {
  const flags = ['--max-model-len', String(contextLength), '--enable-auto-tool-choice', '--tool-call-parser', 'hermes'];
  // codex sends tools that no engine runs.
  const lines = ['tools: { unserved: drop }'];
  const chat = engineFile('chat', { flags, lines }).replace('context_length: 8192', `context_length: ${contextLength}`);
  const pooling = ['--runner', 'pooling', '--convert', 'embed'];
  const embed = engineFile('embed', { flags: pooling }).replace('task_type: chat', 'task_type: embedding');
  const home = makeHome({ chat, embed });
  const env = { HEADGATE_BOOTSTRAP_KEY: givenKey, LOG_LEVEL: 'warn' };
  const gateway = runGateway({ home, databaseUrl: null, env });
  const stopped = async (): Promise<void> => {
    gateway.signal('SIGTERM');
    await gateway.exited;
    await clearHome(home);
  };
  process.once('SIGINT', () => void stopped());
  try {
    const address = await gateway.url();
    await liftLimits(address, givenKey);
    return await run({ address, apiKey: givenKey, model: 'chat', embeddingModel: 'embed' });
  } finally {
    await stopped();
  }
}

/** Tries clients of npm and of PyPI beside each other, and the clients of each one after the other. */
async function tryAll({ chosen, folder }: Wish, target: Target): Promise<readonly Outcome[]> {
  const outcomes = new Map<Client, Outcome>();
  const inTurn = async (registry: Client['registry']): Promise<void> => {
    for (const client of chosen.filter((one) => one.registry === registry)) {
      outcomes.set(client, await tryClient(client, folder, target));
      process.stderr.write(`${outcomes.size} of ${chosen.length}: ${client.shown.join(', ')} (${registry})\n`);
    }
  };
  await Promise.all([inTurn('npm'), inTurn('PyPI')]);
  return chosen.flatMap((client) => outcomes.get(client) ?? []);
}

async function main(): Promise<number> {
  const wish = readWish(process.argv.slice(2));
  if (wish === null) {
    process.stdout.write(usage);
    return 0;
  }
  const { target } = wish;
  const outcomes = await (target === null ? withGateway((own) => tryAll(wish, own)) : tryAll(wish, target));
  const table = renderTable(outcomes);
  process.stdout.write(`${table}\n`);
  if (wish.write) writeFileSync(chapter, replaceTable(readFileSync(chapter, 'utf8'), table));
  const failures = failuresOf(outcomes);
  for (const failure of failures) process.stderr.write(`failed: ${failure}\n`);
  return failures.length === 0 ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  const isUsage = error instanceof UsageError || (error instanceof TypeError && 'code' in error);
  if (!isUsage) throw error;
  process.stderr.write(`clients: ${error.message}\n${usage}`);
  process.exitCode = 2;
}
