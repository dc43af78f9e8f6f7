import { describe, expect, it } from 'vitest';
import { costBounds, type RequestSize } from '#core/admission/contract/contract.ts';
import { demandFor } from './hold-demand.ts';

const { size: asked, price } = demandFor('request', 'chat', 1n, false);

/** Most tokens that an engine's count of a request may have. */
function ceilingOf(fields: Partial<RequestSize>): { readonly prompt: number; readonly output: number } {
  const bounds = costBounds({ size: { ...asked, ...fields }, price, capPicoUsd: null, extends: false });
  if (!bounds.ok) throw new Error('the cap is too low');
  return { prompt: Number(bounds.ceiling.promptTokens), output: Number(bounds.ceiling.outputTokens) };
}

describe('the ceiling of a charge', () => {
  it('has the context and the output limit', () => {
    expect(ceilingOf({})).toEqual({ prompt: 8000, output: 1000 });
  });

  it('has all turns that an engine may take unasked, while the hold has one', () => {
    expect(ceilingOf({ turnsPossible: 128 })).toEqual({ prompt: 128 * 8000, output: 128 * 8000 });
    const hold = (turnsPossible: number): unknown => {
      const bounds = costBounds({ size: { ...asked, turnsPossible }, price, capPicoUsd: null, extends: false });
      return bounds.ok ? bounds.request : null;
    };
    expect(hold(128)).toEqual(hold(1));
  });

  it('has the one token that vLLM generates where none is asked for', () => {
    expect(ceilingOf({ outputTokensAsked: 0 })).toEqual({ prompt: 8000, output: 1 });
  });

  const read = { generates: false, outputTokensAsked: null, outputTokensDefault: 0 } as const;

  it('has the bytes of a text that is longer than the context, for engines that divide it', () => {
    expect(ceilingOf({ ...read, inputs: 'texts', bodyBytes: 100_000 })).toEqual({ prompt: 100_000, output: 0 });
    expect(ceilingOf({ ...read, inputs: 'texts', bodyBytes: 100 })).toEqual({ prompt: 8000, output: 0 });
  });

  it('has both texts of each pair', () => {
    expect(ceilingOf({ ...read, inputs: 'pairs', contexts: 3, prompts: 3 })).toEqual({ prompt: 48_000, output: 0 });
  });
});
