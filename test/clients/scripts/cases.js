import { spawn } from 'node:child_process';

/** Shared parts of the scripts. They run in a folder that has one client installed, outside the repository. */

const read = (name) => {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
};

/** Address of the gateway, without /v1. */
export const address = read('CLIENT_GATEWAY');
export const baseURL = `${address}/v1`;
export const apiKey = read('CLIENT_API_KEY');
export const model = read('CLIENT_MODEL');
export const embeddingModel = process.env.CLIENT_EMBEDDING_MODEL ?? '';
export const wrongKey = 'sk-hg-wrong';
export const outputMax = 24;

export const question = 'What is the weather in Paris?';
export const citySchema = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
};

/** Runs cases one after the other, and prints a line of JSON for each. Ends the process: some clients leave timers. */
export async function runCases(cases) {
  for (const [name, run] of Object.entries(cases)) {
    let result = 'ok';
    try {
      await run();
    } catch (error) {
      result = `${error?.name ?? 'Error'}: ${error?.message ?? String(error)}`;
    }
    process.stdout.write(`${JSON.stringify({ case: name, result })}\n`);
  }
  process.exit(0);
}

export function expect(isTrue, message) {
  if (!isTrue) throw new Error(message);
}

export function expectText(text) {
  expect(typeof text === 'string' && text !== '', `expected text, not ${JSON.stringify(text)}`);
}

/** Reads a stream whose parts `textOf` turns into text. */
export async function expectStream(stream, textOf) {
  let text = '';
  for await (const part of stream) text += textOf(part) ?? '';
  expectText(text);
}

export function expectCity(object) {
  expect(typeof object?.city === 'string', `expected a city, not ${JSON.stringify(object)}`);
}

/** Runs what a wrong key must end, and checks the error. */
export async function expectRefusal(run, isRefusal) {
  try {
    await run();
  } catch (error) {
    if (isRefusal(error)) return;
    throw error;
  }
  throw new Error('a wrong key was accepted');
}

/** Runs a program without input. @returns its exit code and its output */
export function runProgram(program, args, env) {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'pipe'], timeout: 120_000 });
    const output = { stdout: '', stderr: '' };
    for (const name of ['stdout', 'stderr']) child[name].on('data', (chunk) => (output[name] += chunk.toString()));
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, ...output }));
  });
}
