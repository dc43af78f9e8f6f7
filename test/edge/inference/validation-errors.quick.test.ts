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

/** What a real vLLM 0.29 says of bodies that its validator refuses, and what the client is told. */
const refusals = JSON.parse(
  readFileSync(new URL('validation-refusals.json', import.meta.url), 'utf8'),
) as readonly Refusal[];
const bounds = { textsMax: 64, inputsMax: 64, sequencesMax: 64 };

it.each(refusals)(
  "translates the engine's validation error: $path $body: $message",
  ({ path, body, engine, code, param, message }) => {
    const endpoint = endpoints.find((one) => one.path === path);
    if (endpoint === undefined) throw new Error(`no endpoint ${path}`);
    const fields = readFields(Buffer.from(body).toString('latin1'), endpoint, bounds);
    const said = JSON.stringify({ error: { message: engine.join('\n'), param: null, code: 400 } });
    const error = engineRefusal(Buffer.from(said).toString('latin1'), new SentRequest(endpoint, fields, false, null));
    expect([error.code, error.param, error.message]).toEqual([code, param, message]);
  },
);
