import { expect } from 'vitest';
import { type Body, chatPath, eventually, type InferenceBench } from '#test/inference/inference-gateway.ts';

const words = 'A long beginning that every one of these requests has in common, so that it is found in the cache. ';

const hourMs = 3_600_000;
const enoughMs = 240_000;

/**
 * Waits for the next hour where this one is nearly over, for tests that are about a single one. It comes before the
 * gateway: what engines count at their start stands in that hour as well.
 */
export async function enoughOfTheHour(): Promise<void> {
  const leftMs = hourMs - (Date.now() % hourMs);
  if (leftMs < enoughMs) await new Promise((resolve) => setTimeout(resolve, leftMs + 1000));
}

/**
 * Streams, JSON, several choices, prompts with a common beginning, and clients that leave midway.
 * @param slow fields that make an engine slow enough for that
 */
export async function sendMix(bench: InferenceBench, slow: object = {}): Promise<void> {
  const common = { messages: [{ role: 'user', content: words.repeat(8) }], max_tokens: 12 };
  const whole = async (fields: object): Promise<string> => {
    const answer = await bench.chat({ ...common, ...fields });
    expect(answer.status, await answer.clone().text()).toBe(200);
    return answer.text();
  };
  await whole({});
  await Promise.all([whole({}), whole({ stream: true }), whole({ n: 2 }), whole({ n: 3, stream: true })]);
  const completion = { model: 'chat', prompt: ['Once upon a time', 'In a land far away'], max_tokens: 6, n: 2 };
  const completed = await bench.post('/v1/completions', completion);
  expect(completed.status).toBe(200);
  await completed.text();
  await Promise.all([1, 2].map((n) => leaveMidway(bench, { ...slow, n })));
}

/** Reads a stream until a few frames have come, and leaves. */
async function leaveMidway(bench: InferenceBench, fields: object): Promise<void> {
  const body = {
    model: 'chat',
    messages: [{ role: 'user', content: 'Tell a very long story.' }],
    max_tokens: 1500,
    ignore_eos: true,
    stream: true,
    ...fields,
  };
  const leaving = new AbortController();
  const answer = await bench.post(chatPath, body, { signal: leaving.signal });
  let frames = 0;
  for await (const bytes of answer.body ?? []) {
    frames += new TextDecoder().decode(bytes).split('\n\n').length - 1;
    if (frames > 5) break;
  }
  leaving.abort();
  expect(await bench.recordOf(answer)).toMatchObject({ outcome: 'aborted', usage_source: 'engine' });
}

export async function reconcile(bench: InferenceBench, query = ''): Promise<Body> {
  const answer = await bench.gateway.request(`/v1/admin/reconcile${query}`);
  expect(answer.status, await answer.clone().text()).toBe(200);
  return answer.json();
}

/**
 * The comparison, once nothing is so recent that an engine might not have counted it. What was carried over the end of
 * an hour that is over stays there permanently.
 */
export function reconcileAtRest(bench: InferenceBench): Promise<Body> {
  return eventually(async () => {
    const found = await reconcile(bench);
    const isPassing = ({ open, explanations }: Body): boolean =>
      explanations.some(({ kind }: Body) => kind === 'running' || (kind === 'carried' && open));
    return found.data.some(isPassing) ? null : found;
  });
}
