import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { parseAnswer } from '#edge/cli/shell/answers.ts';

const schema = z.object({
  state: z.enum(['ready', 'stopped']),
  file: z.union([z.object({ kind: z.literal('engine') }), z.null()]),
  replicas: z.array(z.object({ id: z.string(), since: z.int().nullable() })),
});
const load = () => Promise.resolve(schema);
const answer = { state: 'ready', file: null, replicas: [{ id: 'a', since: 1 }] };

describe('an answer of the gateway', () => {
  it('keeps fields that the contract does not have', async () => {
    const newer = { ...answer, zone: 'b', replicas: [{ id: 'a', since: null, gpu: 0 }] };
    await expect(parseAnswer(load, newer)).resolves.toEqual(newer);
  });

  it('keeps texts that the contract does not list, also within a union', async () => {
    const newer = { ...answer, state: 'paused', file: { kind: 'container' } };
    await expect(parseAnswer(load, newer)).resolves.toEqual(newer);
  });

  it.each([
    ['a field is missing', { ...answer, replicas: [{ since: 1 }] }],
    ['a listed text is missing', { file: null, replicas: [] }],
    ['a field has another type', { ...answer, state: 3 }],
    ['a field of a union has another type', { ...answer, file: { kind: 1 } }],
    ['there is no answer', null],
  ])('is rejected if %s', async (_, other) => {
    await expect(parseAnswer(load, other)).rejects.toThrow('cannot read');
  });
});
