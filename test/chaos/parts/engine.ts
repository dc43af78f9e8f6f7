import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync } from 'node:fs';
import { freePort } from '#test/free-port.ts';
import { repository } from '#test/programs/gateway-process.ts';
import { endWithUs } from './tidy.ts';

/** An engine's counts for a request, over all attempts at it. */
export interface Counted {
  /** Each prompt as often as it was scheduled. */
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** How often its first token was made. */
  readonly attempts: number;
}

/** The stand-in for vLLM that several gateways use, as a process of its own. */
export interface ChaosEngine {
  readonly url: string;
  readonly pid: number;
  /** By the id of the usage record. */
  counted(): ReadonlyMap<string, Counted>;
  /** vLLM's counters, of the run that lives. */
  counters(): Promise<{ readonly promptTokens: number; readonly outputTokens: number }>;
  close(): Promise<void>;
}

/** The flags with which the stand-in bills as a vLLM that Headgate starts. */
export const engineFlags: readonly string[] = [
  '--enable-force-include-usage',
  '--enable-request-id-headers',
  '--dev-mode',
  '--max-model-len',
  '8192',
];

export interface EngineOptions {
  readonly id: string;
  /** Path of a file that the engine appends a line to for each output token. */
  readonly journal: string;
  /** Flags besides `engineFlags`. */
  readonly flags?: readonly string[];
}

export async function startEngine({ id, journal, flags = [] }: EngineOptions): Promise<ChaosEngine> {
  const port = await freePort();
  const place = ['--host', '127.0.0.1', '--port', String(port), '--served-model-name', id, '--journal', journal];
  const child = spawn(process.execPath, ['engines/standin/standin.js', ...place, ...engineFlags, ...flags], {
    cwd: repository,
    env: { PATH: process.env['PATH'] },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const left = endWithUs(child.pid ?? 0);
  await saysReady(child);
  const url = `http://127.0.0.1:${port}`;
  return {
    url,
    pid: child.pid ?? 0,
    counted: () => readJournal(journal),
    counters: () => readCounters(url),
    async close() {
      if (child.exitCode === null && child.signalCode === null) {
        child.kill('SIGKILL');
        await once(child, 'exit');
      }
      left();
    },
  };
}

function saysReady(child: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    let said = '';
    child.stderr?.on('data', (bytes: Buffer) => {
      said = (said + bytes.toString()).slice(-4000);
      if (said.includes('Application startup complete')) resolve();
    });
    child.once('exit', (code) => reject(new Error(`the engine ended with ${code}: ${said}`)));
  });
}

/** Lines of the stand-in's journal: process, request, prompt tokens, tokens so far. */
export function readJournal(path: string): ReadonlyMap<string, Counted> {
  const counted = new Map<string, Counted>();
  const lines = existsSync(path) ? readFileSync(path, 'utf8').split('\n').slice(0, -1) : [];
  for (const line of lines) {
    const [, name = '', prompt = '0', token = '0'] = line.split(' ');
    const id = name.replace(/^chatcmpl-/, '');
    const { promptTokens, outputTokens, attempts } = counted.get(id) ?? noneCounted;
    const isFirst = token === '1';
    counted.set(id, {
      promptTokens: promptTokens + (isFirst ? Number(prompt) : 0),
      outputTokens: outputTokens + 1,
      attempts: attempts + (isFirst ? 1 : 0),
    });
  }
  return counted;
}

const noneCounted: Counted = { promptTokens: 0, outputTokens: 0, attempts: 0 };

async function readCounters(url: string): Promise<{ promptTokens: number; outputTokens: number }> {
  const text = await (await fetch(`${url}/metrics`)).text();
  const counter = (name: string): number => {
    const found = new RegExp(`^${name}\\{[^}]*\\} (\\S+)$`, 'm').exec(text)?.[1];
    if (found === undefined) throw new Error(`the engine has no counter ${name}`);
    return Number(found);
  };
  return { promptTokens: counter('vllm:prompt_tokens_total'), outputTokens: counter('vllm:generation_tokens_total') };
}
