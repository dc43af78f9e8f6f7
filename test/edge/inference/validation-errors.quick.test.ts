import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { engineRefusal } from '#edge/inference/engine/engine-refusal.ts';
import { endpoints } from '#edge/inference/request/endpoints.ts';
import { readFields } from '#edge/inference/request/fields.ts';
import { SentRequest } from '#edge/inference/engine/sent-request.ts';

interface Refusal {
  readonly path: string;
  readonly body: string;
  /** Lines of what the engine said, without the values that it quotes. */
  readonly engine: readonly string[];
  readonly code: string;
  readonly param: string;
  readonly message: string;
}

/** Answers of a real vLLM 0.29 to bodies that its validator rejects, and the answers that the client gets. */
const refusals = JSON.parse(
  readFileSync(new URL('validation-refusals.json', import.meta.url), 'utf8'),
) as readonly Refusal[];
const bounds = { textsMax: 64, inputsMax: 64, sequencesMax: 64 };

/** The client's error when an engine rejects a body with these lines. */
function told({ path, body }: Refusal, lines: readonly string[]): readonly (string | null)[] {
  const endpoint = endpoints.find((one) => one.path === path);
  if (endpoint === undefined) throw new Error(`no endpoint ${path}`);
  const fields = readFields(Buffer.from(body).toString('latin1'), endpoint, bounds);
  const said = JSON.stringify({ error: { message: lines.join('\n'), param: null, code: 400 } });
  const error = engineRefusal(Buffer.from(said).toString('latin1'), new SentRequest(endpoint, fields, false, null));
  return [error.code, error.param, error.message];
}

it.each(refusals)("translates the engine's validation error: $path $body: $message", (refusal) => {
  expect(told(refusal, refusal.engine)).toEqual([refusal.code, refusal.param, refusal.message]);
});

/** Names of vLLM's forms of values, which the paths of 0.32 lack. */
const inner =
  /[[\](){}]|^(?:function-\w+|nullable|tagged-union|union|str|int|float|bool|bytes|list|tuple|dict|set|none)$/;

/** The path of a mistake as vLLM 0.32 writes it. */
function dotted(line: string): string {
  return line.replace(/'loc': \((.*?)\), 'msg'/, (_, tuple: string) => {
    const steps = [...tuple.matchAll(/'([^']*)'|"([^"]*)"|(\d+)/g)].map(([, ...names]) => names.find(Boolean) ?? '');
    return `'loc': '${steps.filter((step) => !inner.test(step)).join('.')}', 'msg'`;
  });
}

const mistakesMax = 10;
// A longer list is cut by vLLM 0.32, so that the meant form may be missing from it.
it.each(refusals.filter(({ engine }) => engine.length <= mistakesMax + 1))(
  'translates the validation error of vLLM 0.32 likewise: $path $body: $message',
  (refusal) => {
    expect(told(refusal, refusal.engine.map(dotted))).toEqual([refusal.code, refusal.param, refusal.message]);
  },
);
