import { describe, expect, it } from 'vitest';
import { defaultLimits } from './engine-model.ts';
import { simulate, type Policy } from './simulate.ts';
import { makeTrace } from './trace.ts';

// Fifteen minutes of a third of the traffic, with an engine's memory in the same proportion to what comes back late.
const seconds = 900;
const limits = { ...defaultLimits, kvBlocks: defaultLimits.kvBlocks / 2 };

function play(policy: Policy, gateways: number, trace: ReturnType<typeof makeTrace>) {
  return simulate(trace, { policy, replicas: 4, gateways, limits, seed: 7, blocksMax: 8192 });
}

describe('routing by cached prefixes, simulated over conversations', () => {
  const conversations = makeTrace({ seconds, seed: 1, rate: 0.3 });
  const applications = makeTrace({ seconds, seed: 1, rate: 0.2, systemPrompts: 6, systemPages: 6 });

  it('runs on a trace with the published token averages', () => {
    const average = (of: (request: (typeof conversations)[number]) => number): number =>
      conversations.reduce((sum, request) => sum + of(request), 0) / conversations.length;
    // The published ones are 12,035 and 343 tokens.
    expect(average((request) => request.input_length)).toBeGreaterThan(9_000);
    expect(average((request) => request.input_length)).toBeLessThan(15_000);
    expect(average((request) => request.output_length)).toBeGreaterThan(300);
    expect(average((request) => request.output_length)).toBeLessThan(390);
  });

  it.each([
    ['one gateway', 1],
    ['three gateways', 3],
  ])('has more than 1.5 times the cached share of round robin and least load, with %s', (_, gateways) => {
    const ours = play('prefix affinity', gateways, conversations);
    for (const policy of ['round robin', 'least load'] as const) {
      expect(ours.cachedShare).toBeGreaterThan(1.5 * play(policy, gateways, conversations).cachedShare);
    }
    expect(ours.workImbalance).toBeLessThan(1.35);
  });

  it('has more than 1.2 times the cached share of least load with shared system prompts, and balances work', () => {
    const ours = play('prefix affinity', 1, applications);
    const others = play('least load', 1, applications);
    expect(ours.cachedShare).toBeGreaterThan(others.cachedShare * 1.2);
    expect(ours.firstTokenMsP50).toBeLessThan(others.firstTokenMsP50);
    expect(ours.workImbalance).toBeLessThan(1.35);
  });
});
