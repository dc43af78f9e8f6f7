import { cpSync } from 'node:fs';
import { join } from 'node:path';
import { installClient, pythonOf, runProgram } from './install.ts';
import type { Client } from './list.ts';
import { type Outcome, readResults } from './table.ts';

/** The gateway that clients ask, and what they ask. */
export interface Target {
  /** Without /v1. */
  readonly address: string;
  readonly apiKey: string;
  readonly model: string;
  /** Null leaves embeddings out. */
  readonly embeddingModel: string | null;
}

const scripts = new URL('scripts/', import.meta.url).pathname;
const scriptMaxMs = 600_000;

/** Installs a client below a folder and runs its cases. A client that cannot be installed fails in all of them. */
export async function tryClient(client: Client, parent: string, target: Target): Promise<Outcome> {
  const folder = join(parent, client.folder);
  const cases = client.cases.filter((name) => name !== 'embeddings' || target.embeddingModel !== null);
  const asked = { ...client, cases };
  try {
    const versions = await installClient(client, folder);
    return { client, versions, results: await runScript(asked, folder, target) };
  } catch (error) {
    const result = `not installed: ${error instanceof Error ? error.message : String(error)}`;
    return { client, versions: [], results: Object.fromEntries(cases.map((name) => [name, result])) };
  }
}

async function runScript(client: Client, folder: string, target: Target): Promise<Outcome['results']> {
  const env = {
    PATH: process.env['PATH'],
    // Clients find no settings of the user.
    HOME: folder,
    CLIENT_GATEWAY: target.address,
    CLIENT_API_KEY: target.apiKey,
    CLIENT_MODEL: target.model,
    CLIENT_EMBEDDING_MODEL: target.embeddingModel ?? '',
  };
  const isPython = client.script.endsWith('.py');
  // Node finds packages by the place of the script.
  if (!isPython) cpSync(scripts, folder, { recursive: true, filter: (path) => !path.endsWith('.py') });
  const [program, ...args] = isPython
    ? [pythonOf(folder), '-B', join(scripts, client.script)]
    : [process.execPath, '--no-warnings', client.script];
  const { code, stdout, stderr } = await runProgram(program, args, { cwd: folder, env, timeout: scriptMaxMs });
  const lastWords = stderr.trim().split('\n').at(-1) ?? '';
  return readResults(client, stdout, `the script ended with code ${code}. ${lastWords}`);
}
