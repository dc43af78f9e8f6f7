import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Replica } from '#core/fleet/fleet.ts';
import { endpoints } from '#edge/inference/request/endpoints.ts';
import { engineBody } from '#edge/inference/engine/engine-body.ts';
import { readFields, type RequestFields } from '#edge/inference/request/fields.ts';

const endpoint = endpoints.find(({ path }) => path === '/v1/embeddings') ?? endpoints[0];
const bounds = { sequencesMax: 128, inputsMax: 2048, textsMax: 8192 };
const latin1 = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');

/** Parts of a body, as engines get them. */
function partsOf(text: string): { model: string; input: unknown[] }[] {
  const fields: RequestFields = readFields(latin1(text), endpoint, bounds);
  const options = {
    endpoint,
    requestId: 'r',
    engine: { kind: 'vllm' } as never,
    replica: { forcedUsage: true } as Replica,
    upstreamModel: 'other',
    outputTokensMax: null,
    cacheSalt: 'salt',
    members: new Map<string, string>(),
  };
  const parts = fields.split?.parts ?? [null];
  return parts.map((part) =>
    JSON.parse(Buffer.from(String(engineBody(fields, { ...options, part })), 'latin1').toString()),
  );
}

const anyTexts = fc.oneof(
  fc.array(fc.oneof(fc.string({ unit: 'binary', maxLength: 8 }), fc.constantFrom('"', '\\', '],[', '"]', ',')), {
    minLength: 1,
    maxLength: 400,
    size: 'max',
  }),
  fc.array(fc.array(fc.nat(60_000), { maxLength: 4 }), { minLength: 1, maxLength: 400, size: 'max' }),
);
const anySpacing = fc.constantFrom(undefined, 1, '\t');
const anyOthers = fc
  .dictionary(fc.constantFrom('a', 'user', 'z'), fc.jsonValue({ maxDepth: 2 }), { maxKeys: 3 })
  // JSON has no minus zero.
  .map((members) => JSON.parse(JSON.stringify(members)) as object);

describe('the parts of many texts', () => {
  it('contain each text once, in order, and all other fields, for any formatting', () => {
    fc.assert(
      fc.property(anyTexts, anyOthers, anyOthers, anySpacing, (input, before, after, spacing) => {
        const parts = partsOf(JSON.stringify({ ...before, model: 'm', input, ...after }, null, spacing));
        expect(parts.flatMap((part) => part.input)).toEqual(input);
        for (const part of parts) {
          expect(part.input.length).toBeLessThanOrEqual(128);
          expect(part).toEqual({ ...before, ...after, model: 'other', cache_salt: 'salt', input: part.input });
        }
        const sizes = parts.slice(0, -1).map((part) => part.input.length);
        expect(new Set(sizes).size).toBeLessThanOrEqual(1);
        expect(parts).toHaveLength(Math.ceil(input.length / 128));
      }),
      { numRuns: 200 },
    );
  });
});
