import { parseArgs } from 'node:util';
import { clearHome, givenKey, makeHome, runGateway } from '#test/programs/gateway-process.ts';
import { chatEngine, embeddingEngine, readEngineCounters } from './engines.ts';
import type { Findings } from './compare.ts';
import { liftLimits } from '#test/gateway.ts';
import { runCampaign } from './run.ts';

/** `npm run campaign`: many requests of all kinds to a real vLLM, whose counters must agree with every bill. */

const usage = `npm run campaign -- [--requests 1000] [--seed N] [--clients 16]

Sends requests through a gateway to the vLLM that VLLM_BIN and VLLM_MODEL name: chat, completions, responses, messages
and embeddings, as streams and JSON, with several choices, tools, reasoning and a long chat template. One client in
five leaves before the end. Compares what clients saw, the usage records, the ledger and vLLM's own counters. A seed
makes the same requests again; the moments at which clients leave depend on the machine.
`;

const options = {
  requests: { type: 'string', default: '1000' },
  seed: { type: 'string' },
  clients: { type: 'string', default: '16' },
  help: { type: 'boolean', short: 'h' },
} as const;

class UsageError extends Error {}

interface Wish {
  readonly requests: number;
  readonly seed: number;
  readonly clients: number;
}

function readWish(args: readonly string[]): Wish | null {
  const { values } = parseArgs({ args: [...args], options });
  if (values.help === true) return null;
  const whole = (name: string, text: string): number => {
    if (!/^\d{1,9}$/.test(text)) throw new UsageError(`--${name}: expected a whole number, not "${text}"`);
    return Number(text);
  };
  for (const name of ['VLLM_BIN', 'VLLM_MODEL']) {
    if ((process.env[name] ?? '') === '')
      throw new UsageError(`${name} must name a vLLM and its model, see test/README.md`);
  }
  return {
    requests: whole('requests', values.requests),
    seed: values.seed === undefined ? Math.floor(Math.random() * 1e9) : whole('seed', values.seed),
    clients: whole('clients', values.clients),
  };
}

async function campaign(wish: Wish): Promise<Findings> {
  const home = makeHome({ chat: chatEngine(), embed: embeddingEngine() });
  const env = { HEADGATE_BOOTSTRAP_KEY: givenKey, LOG_LEVEL: 'warn' };
  const gateway = runGateway({ home, databaseUrl: null, env });
  const stopped = async (): Promise<void> => {
    gateway.signal('SIGTERM');
    await gateway.exited;
    await clearHome(home);
  };
  process.once('SIGINT', () => void stopped());
  try {
    const url = await gateway.url();
    await prepare(url);
    return await runCampaign({
      ...wish,
      url,
      key: givenKey,
      models: { chat: 'chat', embedding: 'embed' },
      readCounters: () => readEngineCounters(home.dataDir, ['chat', 'embed']),
      onProgress: (sent) => process.stdout.write(`${sent} requests sent\n`),
    });
  } finally {
    await stopped();
  }
}

/** Gives the first organization money and its key no limits, and starts both engines. */
async function prepare(url: string): Promise<void> {
  const call = async (path: string, method: string, body: object): Promise<void> => {
    const headers = { authorization: `Bearer ${givenKey}`, 'content-type': 'application/json' };
    const answer = await fetch(new URL(path, url), { method, headers, body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  };
  await liftLimits(url, givenKey);
  await call('/v1/chat/completions', 'POST', {
    model: 'chat',
    messages: [{ role: 'user', content: 'Hi' }],
    max_tokens: 1,
  });
  await call('/v1/embeddings', 'POST', { model: 'embed', input: 'Hi' });
}

async function main(): Promise<number> {
  const wish = readWish(process.argv.slice(2));
  if (wish === null) {
    process.stdout.write(usage);
    return 0;
  }
  process.stdout.write(`seed ${wish.seed}, ${wish.requests} requests, ${wish.clients} at a time\n`);
  const { figures, problems } = await campaign(wish);
  for (const [name, figure] of Object.entries(figures)) process.stdout.write(`${name}: ${figure}\n`);
  for (const problem of problems.slice(0, 20)) process.stdout.write(`wrong: ${problem}\n`);
  process.stdout.write(problems.length === 0 ? 'all sides agree\n' : `${problems.length} problems\n`);
  return problems.length === 0 ? 0 : 1;
}

try {
  process.exitCode = await main();
} catch (error) {
  const isUsage = error instanceof UsageError || (error instanceof TypeError && 'code' in error);
  if (!isUsage) throw error;
  process.stderr.write(`campaign: ${error.message}\n${usage}`);
  process.exitCode = 2;
}
