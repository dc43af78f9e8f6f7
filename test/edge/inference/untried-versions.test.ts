import { describe, expect, it } from 'vitest';
import { type Body, standinFile, useInference } from '#test/inference/inference-gateway.ts';

/** Engines whose version of vLLM was not tried, with aborts that work or do not. */
const untried = (id: string, ...flags: string[]): string =>
  standinFile(id, { flags: ['--report-version', '0.99.0', '--tpot-ms', '5', ...flags] });

const bench = useInference(() => ({
  engines: {
    right: untried('right'),
    deaf: untried('deaf', '--abort-fault', 'deaf', '--output-tokens', '40'),
    miscounting: untried('miscounting', '--abort-fault', 'miscount'),
    without: untried('without', '--abort-fault', 'missing'),
    wordless: standinFile('wordless', { taskType: 'embedding', flags: ['--report-version', '0.99.0'] }),
    tried: standinFile('tried', { flags: ['--tpot-ms', '5', '--abort-fault', 'miscount'] }),
  },
}));

const engine = async (id: string): Promise<Body> => (await bench.gateway.request(`/v1/admin/engines/${id}`)).json();

/** Reads ten frames of a long stream, and leaves. */
async function leave(model: string): Promise<Body> {
  const leaving = new AbortController();
  const answer = await bench.chat({ model, stream: true, max_tokens: 2000 }, { signal: leaving.signal });
  expect(answer.status).toBe(200);
  const reader = answer.body?.getReader();
  let text = '';
  while (text.split('\n\n').length < 10) text += Buffer.from((await reader?.read())?.value ?? []).toString();
  leaving.abort();
  return bench.recordOf(answer);
}

describe('an engine of an untried version of vLLM', () => {
  it('serves without a warning if an aborted request is counted as its usage says', async () => {
    expect(await leave('right')).toMatchObject({ outcome: 'aborted', usage_source: 'engine' });
    expect(await engine('right')).toMatchObject({
      warnings: [],
      replicas: [{ version: { name: '0.99.0', tried: false } }],
    });
  });

  it.each([
    ['deaf', /ran to its end although it was aborted/],
    ['miscounting', /tokens of prompt and output, and the engine's counters/],
    ['without', /POST \/abort_requests returned status 404/],
  ])('serves with a warning if its aborts fail their check, and closes connections instead: %s', async (id, fault) => {
    const record = await leave(id);
    expect(record).toMatchObject({ outcome: 'aborted', usage_source: 'last_seen' });
    const { state, warnings } = await engine(id);
    expect(state).toBe('ready');
    expect(warnings).toEqual([expect.stringMatching(/^Aborts by id failed their check/)]);
    expect(warnings[0]).toMatch(fault);
  });

  it('is not asked for aborts if it makes no text', async () => {
    expect((await bench.post('/v1/embeddings', { model: 'wordless', input: 'Hi' })).status).toBe(200);
    expect((await engine('wordless')).warnings).toEqual([]);
  });
});

it('aborts requests without a check at an engine of a tried version', async () => {
  expect(await leave('tried')).toMatchObject({ outcome: 'aborted', usage_source: 'engine' });
  expect((await engine('tried')).warnings).toEqual([]);
});
