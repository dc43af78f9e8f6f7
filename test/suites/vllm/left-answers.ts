import { expect, it } from 'vitest';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { bench, counters, expectExact } from './real-engine.ts';

interface LeftAnswers {
  /** Sends a request that would take 1,500 tokens, with these fields beside. */
  readonly tell: (fields: object, options: object) => Promise<Response>;
  /** Stands once in each event that brings text. */
  readonly delta: string;
}

/** Clients leave what a route has begun, at several places: it is billed as the engine counts. */
export function itBillsWhatIsLeft({ tell, delta }: LeftAnswers): void {
  it.each([1, 2, 3])("bills a stream that its client leaves by the engine's count, %d of 3", async (round) => {
    const before = await counters();
    const leaving = new AbortController();
    const answer = await tell({ stream: true }, { signal: leaving.signal });
    const reader = answer.body?.getReader();
    let text = '';
    while (text.split(delta).length < round * 6) {
      const part = await reader?.read();
      text += Buffer.from(part?.value ?? []).toString();
    }
    leaving.abort();
    const record = await bench.recordOf(answer);
    await expectExact(record, before, 'aborted');
    expect(record.output_tokens).toBeLessThan(1500);
  });

  it.each([1, 2])("bills a JSON answer that its client leaves by the engine's count, %d of 2", async (round) => {
    const before = await counters();
    const leaving = new AbortController();
    const name = `left-${round}-${Date.now()}`;
    const headers = { 'x-client-request-id': name };
    const gone = tell({}, { signal: leaving.signal, headers }).catch(() => null);
    await eventually(async () => (await counters()).output > before.output + 4);
    leaving.abort();
    await gone;
    const record: Body = await eventually(async () => {
      const list: Body = await (await bench.gateway.request('/v1/usage/requests')).json();
      return list.data.find((one: Body) => one.client_request_id === name) ?? null;
    });
    await expectExact(record, before, 'aborted');
    expect(record.output_tokens).toBeLessThan(1500);
  });
}
