import { request } from 'node:http';
import { describe, expect, it, vi } from 'vitest';
import {
  type Body,
  chatBody,
  chatPath,
  eventually,
  openOrganization,
  readMetric,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

const bench = useInference(() => ({
  engines: { chat: standinFile('chat', { flags: ['--max-num-seqs', '256'] }) },
}));

/** A small generator of the same numbers in every run. */
function createRandom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return state / 2_147_483_648;
  };
}

interface Leave {
  /** Frames, or reads of a JSON answer, after which the socket is destroyed; null stays to the end. */
  readonly frames: number | null;
  /** Milliseconds after which it is destroyed at the latest; 0 is never. */
  readonly ms: number;
}

/** Sends a request and leaves, or does not; says whether the answer was complete. */
function sendAndLeave(body: object, key: string, leave: Leave): Promise<{ complete: boolean; id: string | null }> {
  return new Promise((resolve) => {
    const text = JSON.stringify(body);
    const headers = {
      authorization: `Bearer ${key}`,
      'content-type': 'application/json',
      'content-length': Buffer.byteLength(text),
    };
    let id: string | null = null;
    let seen = 0;
    const call = request(new URL(chatPath, bench.gateway.url), { method: 'POST', headers, agent: false }, (answer) => {
      id = String(answer.headers['x-request-id']);
      answer.on('data', (chunk: Buffer) => {
        seen += chunk.toString('latin1').split('data: ').length - 1;
        if (leave.frames !== null && seen >= leave.frames) call.destroy();
      });
      answer.on('error', () => undefined);
      answer.on('close', () => resolve({ complete: answer.complete, id }));
    });
    call.on('error', () => resolve({ complete: false, id }));
    if (leave.ms > 0) setTimeout(() => call.destroy(), leave.ms).unref();
    call.end(text);
  });
}

async function readRecords(key: string): Promise<Body[]> {
  const all: Body[] = [];
  for (let cursor = ''; ;) {
    const page: Body = await (await bench.gateway.request(`/v1/usage/requests?limit=100${cursor}`, { key })).json();
    all.push(...page.data);
    if (!page.has_more) return all;
    cursor = `&cursor=${encodeURIComponent(page.next_cursor)}`;
  }
}

const sum = (records: readonly Body[], field: string): number =>
  records.reduce((total, record) => total + record[field], 0);

describe('clients that leave', () => {
  it("leave records that equal the engine's counters: 200 streams and 50 JSON requests, half of them left", async () => {
    const { key } = await openOrganization(bench.gateway, '5');
    await (await bench.chat({})).text();
    const socket = bench.socketOf('chat');
    const generatedBefore = await readMetric(socket, 'vllm:generation_tokens_total');
    const promptBefore = await readMetric(socket, 'vllm:prompt_tokens_total');
    const random = createRandom(42);

    const results = await Promise.all(
      Array.from({ length: 250 }, (_, index) => {
        const stream = index % 5 !== 4;
        const leaves = index % 2 === 0;
        // A client leaves long before the end, also where a busy machine hands over many frames at once.
        const tokens = leaves ? 400 : 20 + Math.floor(random() * 60);
        const standin = {
          output_tokens: tokens,
          ttft_ms: Math.floor(random() * 40),
          tpot_ms: leaves ? 5 : 1 + Math.floor(random() * 4),
        };
        const body = chatBody({ stream, max_tokens: 400, n: index % 7 === 0 ? 2 : 1, standin });
        const frames = leaves && stream ? 1 + Math.floor(random() * tokens * 0.2) : null;
        const ms = leaves && (!stream || random() < 0.3) ? 1 + Math.floor(random() * 150) : 0;
        return sendAndLeave(body, key, { frames, ms });
      }),
    );

    // The request of a client that left at once may be read after the others have ended.
    const { records, generated } = await vi.waitFor(
      async () => {
        expect(await readMetric(socket, 'vllm:num_requests_running')).toBe(0);
        expect((await bench.wallet(key)).held).toBe('0');
        const booked = await readRecords(key);
        const made = (await readMetric(socket, 'vllm:generation_tokens_total')) - generatedBefore;
        expect(sum(booked, 'output_tokens')).toBe(made);
        return { records: booked, generated: made };
      },
      { timeout: 300_000 },
    );
    // The counter has a prompt once per choice that began; usage, and so the bill, has it once.
    const prompts = (await readMetric(socket, 'vllm:prompt_tokens_total')) - promptBefore;
    expect(sum(records, 'input_tokens')).toBeLessThanOrEqual(prompts);
    expect(sum(records, 'input_tokens')).toBeGreaterThan(prompts / 2);

    // A client that left before its head was read may never have been admitted; all others have one record.
    const seenIds = results.flatMap(({ id }) => (id === null ? [] : [id]));
    const byId = new Map(records.map((record) => [record.id, record]));
    expect(byId.size).toBe(records.length);
    for (const id of seenIds) expect(byId.has(id)).toBe(true);
    const outcomes = results.flatMap(({ complete, id }) => (complete && id !== null ? [byId.get(id)?.outcome] : []));
    expect(new Set(outcomes)).toEqual(new Set(['completed']));
    const aborted = records.filter(({ outcome }) => outcome === 'aborted');
    expect(aborted.length).toBeGreaterThan(60);
    expect(
      aborted.every(({ usage_source: source, output_tokens: output }) => source === 'engine' || output === 0),
    ).toBe(true);
    expect(records.every(({ outcome }) => outcome === 'aborted' || outcome === 'completed')).toBe(true);

    const wallet: Body = await bench.wallet(key);
    const spent = records.reduce((total, { cost }) => total + BigInt(Math.round(Number(cost) * 1e12)), 0n);
    expect(BigInt(Math.round(Number(wallet.balance) * 1e12))).toBe(5_000_000_000_000n - spent);
    const { totals }: Body = await (await bench.gateway.request('/v1/usage/summary?from=2026-01-01', { key })).json();
    expect(totals.output_tokens).toBe(generated);
    expect(totals.num_model_requests).toBe(records.length);
  });

  it('are charged nothing before the first token', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    for (const stream of [true, false]) {
      const body = chatBody({ stream, standin: { ttft_ms: 5000 } });
      const left = sendAndLeave(body, key, { frames: null, ms: 100 });
      await left;
    }
    const records = await eventually(async () => {
      const found = await readRecords(key);
      return found.length === 2 ? found : null;
    });
    for (const record of records)
      expect(record).toMatchObject({ outcome: 'aborted', status: 499, input_tokens: 0, output_tokens: 0, cost: '0' });
    expect(await readMetric(bench.socketOf('chat'), 'vllm:num_requests_running')).toBe(0);
  });

  it('have outcome completed when they received the end of every choice', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const body = chatBody({ stream: true, standin: { output_tokens: 3, finish: 'stop', tpot_ms: 5 } });
    const answer = await fetch(new URL(chatPath, bench.gateway.url), {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const reader = answer.body?.getReader();
    let text = '';
    while (reader !== undefined && !text.includes('"finish_reason":"stop"')) {
      const { value } = await reader.read();
      text += Buffer.from(value ?? []).toString();
    }
    await reader?.cancel();
    const record = await bench.recordOf(answer, key);
    expect(record).toMatchObject({ outcome: 'completed', output_tokens: 3, usage_source: 'engine' });
  });
});

describe('a usage record', () => {
  it('has every field, and exists when the last byte is sent', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    for (const stream of [true, false]) {
      const headers = { 'x-client-request-id': `my own ${stream}` };
      const answer = await bench.chat({ stream, standin: { output_tokens: 5, ttft_ms: 30 } }, { key, headers });
      await answer.text();
      const id = answer.headers.get('x-request-id') ?? '';
      const found = await bench.gateway.request(`/v1/usage/requests/${id}`, { key });
      expect(found.status).toBe(200);
      const record: Body = await found.json();
      const shape = {
        id,
        object: 'usage.request',
        model: 'chat',
        endpoint: chatPath,
        stream,
        status: 200,
        outcome: 'completed',
        reason: null,
      };
      expect(record).toMatchObject({
        ...shape,
        cache_hit: false,
        output_tokens: 5,
        usage_source: 'engine',
        currency: 'USD',
      });
      expect(record).toMatchObject({
        client_request_id: `my own ${stream}`,
        written_off: '0',
        key_id: expect.stringMatching(/^key_/),
      });
      expect(Math.abs(record.created_at - Date.now() / 1000)).toBeLessThan(60);
      expect(record.timings_ms.first_byte).toBeGreaterThanOrEqual(25);
      expect(record.timings_ms.total).toBeGreaterThanOrEqual(record.timings_ms.first_byte);
      expect(record.timings_ms.queued).toBeGreaterThanOrEqual(0);
    }
  });

  it("keeps a client's request id only as printable text of bounded length", async () => {
    for (const [headers, noted] of [
      [{ 'x-request-id': 'plain' }, 'plain'],
      [{ 'x-request-id': 'second', 'x-client-request-id': 'first' }, 'first'],
      [{ 'x-client-request-id': 'x'.repeat(500) }, 'x'.repeat(200)],
      [{ 'x-client-request-id': 'caf\u00e9' }, null],
      [{}, null],
    ] as const) {
      const answer = await bench.chat({}, { headers });
      await answer.text();
      expect((await bench.recordOf(answer)).client_request_id).toBe(noted);
    }
  });
});
