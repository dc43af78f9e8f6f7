import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createPiecesMeter, meterJson } from '#core/metering/metering.ts';

const reasons = ['stop', 'abort', 'error', '', null];
const anyReason = fc.constantFrom(...reasons);
const anyName = fc.constantFrom('finish_reason', 'choices', 'abort', 'x"\\', 'message', 'y'.repeat(80));
const anyValue = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    fc.string({ unit: 'binary', maxLength: 90 }),
    anyReason,
    fc.dictionary(anyName, tie('value'), { maxKeys: 3 }),
    fc.array(tie('value'), { maxLength: 3 }),
  ),
})).value;
const anyChoice = fc
  .tuple(fc.dictionary(anyName, anyValue), anyReason, fc.dictionary(anyName, anyValue))
  .map(([before, reason, after]) => ({ ...before, finish_reason: reason, ...after }));
const anyAnswer = fc
  .tuple(fc.dictionary(anyName, anyValue), fc.array(anyChoice, { maxLength: 3 }), anyValue)
  .map(([before, choices, after]) => ({ ...before, choices, after }));
const anyLengths = fc.array(fc.integer({ min: 1, max: 12 }), { minLength: 1, maxLength: 8 });

/** Returns whether a choice of the parsed answer is aborted. */
function isAborted({ choices }: { readonly choices: readonly object[] }): boolean {
  return choices.some((choice) => {
    const reason: unknown = Reflect.get(choice, 'finish_reason');
    return reason === 'abort' || reason === 'error';
  });
}

describe('the meters of JSON answers', () => {
  it('report an abort for choices[i].finish_reason only, in pieces of any length', () => {
    const usage = { prompt_tokens: 1, completion_tokens: 1 };
    const seen = new Set<boolean>();
    fc.assert(
      fc.property(anyAnswer, fc.constantFrom(undefined, 1, '\t'), anyLengths, (answer, spacing, lengths) => {
        const text = Buffer.from(JSON.stringify({ ...answer, usage }, null, spacing), 'utf8').toString('latin1');
        const pieces = createPiecesMeter({ rename: null });
        let at = 0;
        for (let count = 0; at < text.length; count += 1) {
          const length = lengths[Math.min(count, lengths.length - 1)] ?? 1;
          pieces.feed(text.slice(at, at + length));
          at += length;
        }
        const aborted = isAborted(answer);
        seen.add(aborted);
        expect(pieces.end()).toMatchObject({ ok: true, aborted });
        expect(meterJson(text, { rename: null })).toMatchObject({ ok: true, aborted });
      }),
      { numRuns: 500 },
    );
    expect(seen.size).toBe(2);
  });
});
