import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it, vi } from 'vitest';
import { parseId } from '#base/id.ts';
import type { LineAnswer } from '#core/batches/batches.ts';
import { line, linesOf, uploadFile } from '#test/inference/batch-bench.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { answerOf, numberOf, untilEnded, useScriptedBatches } from './scripted-batches.ts';

/** Batches whose requests are answered as a test says. */

const { api, turn, work, start, read, drive, lines } = useScriptedBatches();
const gateway = () => ({ url: api().url, key: api().admin });
const final = ['completed', 'failed', 'expired', 'cancelled'];

describe('a request of a batch', () => {
  it('is retried after errors of any kind, and answered once', async () => {
    const script: readonly (() => LineAnswer)[] = [
      () => {
        throw new Error('never seen before');
      },
      () => answerOf(500),
      () => answerOf(502),
      () => answerOf(409, { error: { code: 'conflict' } }, { 'retry-after': '2' }),
      () => answerOf(408),
      () => answerOf(599),
      () => answerOf(200, { answer: 'late' }),
    ];
    const scripted = work(async (_request, time) => (script[time - 1] ?? (() => answerOf(200)))());
    const { id } = await start(linesOf(3));
    const batch = await drive(scripted, id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 3, completed: 3, failed: 0 } });
    const output = await lines(batch.output_file_id);
    expect(output.map(({ response }) => response.body)).toEqual(Array.from({ length: 3 }, () => ({ answer: 'late' })));
    // The same each time, so that nothing of it is charged twice.
    expect(new Set(scripted.asked.map(({ idempotencyKey }) => idempotencyKey)).size).toBe(3);
    expect(scripted.asked).toHaveLength(21);
  });

  it('fails after eight attempts, with the last answer', async () => {
    const scripted = work((request) =>
      Promise.resolve(answerOf(numberOf(request) === 0 ? 502 : 200, { error: { code: 'upstream_error' } })),
    );
    const { id } = await start(linesOf(2));
    const batch = await drive(scripted, id, 5000);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { completed: 1, failed: 1 } });
    expect(scripted.asked.filter((request) => numberOf(request) === 0)).toHaveLength(8);
    expect(await lines(batch.error_file_id)).toMatchObject([
      { custom_id: 'line-0', response: { status_code: 502 }, error: null },
    ]);
  });

  it.each([
    [402, 'insufficient_funds', {}],
    [402, 'budget_exceeded', {}],
    [403, 'organization_suspended', {}],
    [429, 'monthly_quota_exceeded', { 'retry-after': '900000', 'x-should-retry': 'false' }],
    [429, 'rate_limit_exceeded', { 'retry-after': '30' }],
    [503, 'overloaded', { 'retry-after': '5' }],
  ])('rejected with %d %s waits, and does not count as an attempt', async (status, code, headers) => {
    const times = 12;
    const scripted = work((_request, time) =>
      Promise.resolve(time <= times ? answerOf(status, { error: { code } }, headers) : answerOf(200)),
    );
    const { id } = await start(linesOf(1));
    const seen = new Set<string | null>();
    const batch = await eventually(async () => {
      await scripted.worker.tick();
      turn(5000);
      const now = await read(id);
      seen.add(now.waiting_for);
      return final.includes(now.status) ? now : null;
    });
    expect(batch).toMatchObject({
      status: 'completed',
      waiting_for: null,
      request_counts: { completed: 1, failed: 0 },
    });
    expect(seen).toContain(code);
    expect(scripted.asked).toHaveLength(times + 1);
  });

  it('without money does not block the others', async () => {
    let answered = 0;
    const scripted = work((request) => {
      const isPaid = numberOf(request) >= 2 || answered >= 8;
      if (isPaid) answered += 1;
      return Promise.resolve(isPaid ? answerOf(200) : answerOf(402, { error: { code: 'budget_exceeded' } }));
    });
    const { id } = await start(linesOf(10));
    const batch = await drive(scripted, id, 5000);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { completed: 10, failed: 0 } });
  });

  it('without money at the beginning of the file does not block the others', async () => {
    let answered = 0;
    const scripted = work((request) => {
      const isPaid = numberOf(request) >= 5 || answered >= 5;
      if (isPaid) answered += 1;
      return Promise.resolve(isPaid ? answerOf(200) : answerOf(402, { error: { code: 'insufficient_funds' } }));
    });
    const { id } = await start(linesOf(10));
    const batch = await drive(scripted, id, 5000);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { completed: 10, failed: 0 } });
  });

  it('without money does not pause the batch while answers of another kind come between', async () => {
    let isFilled = false;
    const scripted = work((request) => {
      const isPoor = numberOf(request) % 4 !== 3;
      if (!isPoor) return Promise.resolve(answerOf(400));
      return Promise.resolve(isFilled ? answerOf(200) : answerOf(402, { error: { code: 'insufficient_funds' } }));
    });
    const { id } = await start(linesOf(20));
    await scripted.worker.tick();
    await eventually(async () => (await read(id)).waiting_for !== null);
    expect(scripted.asked).toHaveLength(20);
    isFilled = true;
    const batch = await drive(scripted, id, 5000);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { completed: 15, failed: 5 } });
  });

  it('is retried with the current key, and its batch waits for a slow key lookup', async () => {
    const longMs = 600;
    let refused = 0;
    const scripted = work(
      async (request, time) => {
        if (numberOf(request) < 4) return answerOf(200);
        if (time === 1) refused += 1;
        else await delay(2 * longMs);
        return answerOf(time === 1 ? 401 : 200, { error: { code: 'unauthorized' } });
      },
      { beforeKey: () => delay(refused === 0 ? 0 : longMs) },
    );
    const { id } = await start(linesOf(8));
    const batch = await drive(scripted, id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { completed: 8, failed: 0 } });
    expect(await lines(batch.output_file_id)).toHaveLength(8);
    expect(scripted.asked).toHaveLength(12);
  });

  it('is sent byte for byte as in the file, except for service_tier', async () => {
    const scripted = work(() => Promise.resolve(answerOf(200)));
    const body = '{ "model":"m", "seed": 12345678901234567890, "x":1.50, "stream":false,"service_tier" : "auto" }';
    const { id } = await start(`{"custom_id":"a","method":"POST","url":"/v1/chat/completions","body":${body}}`);
    await drive(scripted, id);
    expect(scripted.asked.map((request) => request.body.toString())).toEqual([body.replace('"auto"', '"flex"')]);
  });
});

describe('a batch', () => {
  it('expires at the end of its window, and aborts its running requests', async () => {
    const scripted = work(untilEnded);
    const { id } = await start(linesOf(5));
    await eventually(async () => {
      await scripted.worker.tick();
      return scripted.asked.length > 0;
    });
    turn(86_400_001);
    const batch = await drive(scripted, id, 0);
    expect(batch).toMatchObject({
      status: 'expired',
      request_counts: { total: 5, completed: 0, failed: 0 },
      output_file_id: null,
    });
    expect(scripted.asked.every(({ signal }) => signal.aborted)).toBe(true);
    const errors = await lines(batch.error_file_id);
    expect(errors.map(({ error }) => error.code)).toEqual(Array.from({ length: 5 }, () => 'batch_expired'));
  });

  it('belongs to one worker at a time: late answers of a former worker are not written', async () => {
    const late: (() => void)[] = [];
    const former = work(() => new Promise((resolve) => late.push(() => resolve(answerOf(200, { by: 'former' })))));
    const { id } = await start(linesOf(4));
    await eventually(async () => {
      await former.worker.tick();
      return former.asked.length > 0;
    });
    turn(30_001);
    const next = work(() => Promise.resolve(answerOf(200, { by: 'next' })));
    await eventually(async () => {
      await next.worker.tick();
      return next.asked.length > 0;
    });
    for (const answer of late) answer();
    await former.worker.tick();
    const batch = await drive(next, id, 0);
    expect(batch.request_counts).toEqual({ total: 4, completed: 4, failed: 0 });
    const output = await lines(batch.output_file_id);
    expect(output.map(({ response }) => response.body)).toEqual(Array.from({ length: 4 }, () => ({ by: 'next' })));
    former.worker.stopAsking();
    await former.worker.close(60_000);
  });

  it('leaves half of the limits of its key to others, and waits for the reset', async () => {
    const spent = {
      'x-ratelimit-limit-requests': '60',
      'x-ratelimit-remaining-requests': '20',
      'x-ratelimit-reset-requests': '45s',
    };
    const scripted = work((request) => Promise.resolve(answerOf(200, {}, numberOf(request) === 0 ? spent : {})));
    const { id } = await start(linesOf(20));
    await eventually(async () => {
      await scripted.worker.tick();
      return (await read(id)).waiting_for === 'rate_limit_exceeded';
    });
    const before = scripted.asked.length;
    expect(before).toBeLessThan(20);
    turn(44_000);
    for (let times = 0; times < 5; times += 1) await scripted.worker.tick();
    expect(scripted.asked).toHaveLength(before);
    expect(await drive(scripted, id)).toMatchObject({ status: 'completed', request_counts: { completed: 20 } });
  });

  it('checks for free limits with dry runs only, as long as it waits', async () => {
    let isSpent = true;
    const looked: string[] = [];
    const scripted = work((request) => {
      if (request.isDry) looked.push(request.idempotencyKey);
      const limits = isSpent ? { 'x-headgate-limits': '60 50 1000, 100 49 80000000' } : {};
      return Promise.resolve(answerOf(200, {}, limits));
    });
    const answered = () => scripted.asked.length - looked.length;
    const { id } = await start(linesOf(20));
    await scripted.worker.tick();
    await eventually(async () => (await read(id)).waiting_for === 'rate_limit_exceeded');
    const before = answered();
    expect(before).toBeLessThan(3);
    for (let times = 1; times <= 3; times += 1) {
      turn(61_000);
      await eventually(async () => {
        await scripted.worker.tick();
        return looked.length === times;
      });
      await eventually(async () => (await read(id)).waiting_for === 'rate_limit_exceeded');
    }
    expect(answered()).toBe(before);
    isSpent = false;
    expect(await drive(scripted, id)).toMatchObject({ status: 'completed', request_counts: { completed: 20 } });
  });

  it('leaves half of a concurrency limit that is set while it runs to others', async () => {
    let limit: number | null = null;
    let running = 0;
    const seen: number[] = [];
    const answering = async (): Promise<LineAnswer> => {
      running += 1;
      seen.push(running);
      await new Promise((resolve) => setTimeout(resolve, 20));
      running -= 1;
      return answerOf(200);
    };
    const scripted = work(answering, { maxConcurrency: () => limit });
    const { id } = await start(linesOf(120));
    await eventually(async () => {
      await scripted.worker.tick();
      return seen.length > 40;
    });
    expect(Math.max(...seen)).toBeGreaterThan(1);
    limit = 2;
    turn(6000);
    const batch = await drive(scripted, id, 0);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { completed: 120 } });
    expect(Math.max(...seen.slice(-20))).toBe(1);
  });

  it('reads its lines across parts of the file', async () => {
    const text = linesOf(5, { body: { messages: [{ role: 'user', content: 'x'.repeat(200_000) }] } });
    const scripted = work(() => Promise.resolve(answerOf(200)));
    const { id } = await start(text);
    expect(await drive(scripted, id)).toMatchObject({ status: 'completed' });
    const bodies = text.split('\n').map((one): object => ({ ...JSON.parse(one).body, service_tier: 'flex' }));
    expect(scripted.asked.map(({ body }): object => JSON.parse(body.toString()))).toEqual(bodies);
  });

  it('keeps its input file while another batch uses it, writes each answer on one line, and expires its output', async () => {
    const pretty = Buffer.from('{\n "a": "b\\nc",\r\n "d": []\n}');
    const scripted = work(() => Promise.resolve({ ...answerOf(200), body: pretty }));
    const file: Body = await uploadFile(gateway(), line(0));
    const first = await start('', { output_expires_after: { anchor: 'created_at', seconds: 3600 } }, file.id);
    const second = await start('', {}, file.id);
    expect((await api().ask(`/v1/files/${file.id}`, { method: 'DELETE' })).status).toBe(409);
    const batch = await drive(scripted, first.id);
    const other = work(() => Promise.resolve(answerOf(200)));
    await drive(other, second.id);
    expect((await api().ask(`/v1/files/${file.id}`, { method: 'DELETE' })).status).toBe(200);
    expect(await lines(batch.output_file_id)).toMatchObject([{ response: { body: { a: 'b\nc', d: [] } } }]);
    const [left] = await api().db.sql<{ count: string }[]>`
      select count(*) from batch_lines where batch_id = ${parseId('batch', first.id)}::uuid`;
    expect(left?.count).toBe('0');
    turn(3_601_000);
    expect((await api().ask(`/v1/files/${batch.output_file_id}`)).status).toBe(404);
    turn(40 * 86_400_000);
    await api().batches.deleteOld();
    expect((await api().ask(`/v1/batches/${first.id}`)).status).toBe(404);
  });

  it.each([
    ['NUL', '{"a\\u0000": nonsense}'],
    ['half a surrogate pair', '{"\\ud83d": nonsense}'],
    ['a pair that would be cut', `{"${'a'.repeat(63)}😀": nonsense}`],
  ])('fails with invalid_json_line for a field name with %s', async (_name, text) => {
    const scripted = work(() => Promise.resolve(answerOf(200)));
    const { id } = await start(text);
    const batch = await drive(scripted, id);
    expect(batch).toMatchObject({ status: 'failed', errors: { data: [{ code: 'invalid_json_line', line: 1 }] } });
  });

  it('leaves the event loop to others while it reads a file of blank lines', async () => {
    const { files } = api();
    const whole = files.read.bind(files);
    const turns: boolean[] = [];
    const spied = vi.spyOn(files, 'read').mockImplementation(async function* (fileId) {
      for await (const part of whole(fileId)) {
        let isTurned = false;
        setImmediate(() => (isTurned = true));
        yield part;
        turns.push(isTurned);
      }
    });
    const { id } = await start('\n'.repeat(262_144));
    const batch = await drive(
      work(() => Promise.resolve(answerOf(200))),
      id,
    );
    spied.mockRestore();
    expect(batch).toMatchObject({ status: 'failed', errors: { data: [{ code: 'empty_file' }] } });
    expect(turns).toEqual([true]);
  });

  it('taken by another worker gets no more requests from the former one, and its requests are aborted', async () => {
    const former = work(untilEnded);
    const { id } = await start(linesOf(1));
    await eventually(async () => {
      await former.worker.tick();
      return former.asked.length > 0;
    });
    turn(30_001);
    const next = work(() => Promise.resolve(answerOf(200)));
    await eventually(async () => {
      await next.worker.tick();
      return next.asked.length > 0;
    });
    await former.worker.tick();
    expect(former.asked.map(({ signal }) => signal.aborted)).toEqual([true]);
    const batch = await drive(next, id, 0);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { completed: 1, failed: 0 } });
    expect(former.asked).toHaveLength(1);
    former.worker.stopAsking();
    await former.worker.close(60_000);
  });

  it('keeps its input file when another batch of the file ends during its creation', async () => {
    // The other one stays open, however soon it is worked at.
    const scripted = work(({ note }) => Promise.resolve(answerOf(note.startsWith(first.id) ? 200 : 402)));
    const file: Body = await uploadFile(gateway(), line(0));
    const first = await start('', {}, file.id);
    const { sql } = api().db;
    const waiting = async (count: number): Promise<boolean> => {
      const rows =
        await sql`select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`;
      return rows.length >= count;
    };
    const { promise: mayGo, resolve: go } = Promise.withResolvers<void>();
    const { promise: isLocked, resolve: locked } = Promise.withResolvers<void>();
    const lock = sql.begin(async (tx) => {
      await tx`lock table audit_log in exclusive mode`;
      locked();
      await mayGo;
    });
    await isLocked;
    const second = start('', {}, file.id);
    await eventually(() => waiting(1));
    const driven = drive(scripted, first.id, 0);
    await eventually(() => waiting(2));
    go();
    await lock;
    await driven;
    await second;
    expect((await api().ask(`/v1/files/${file.id}`, { method: 'DELETE' })).status).toBe(409);
  });

  it('returns 409 beyond a hundred open batches in an organization', async () => {
    const { key } = await api().organization();
    const file: Body = await uploadFile(gateway(), line(0), key);
    const body = { input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h' };
    const make = (): Promise<{ readonly status: number }> => api().ask('/v1/batches', { method: 'POST', body, key });
    for (let n = 0; n < 100; n += 1) expect((await make()).status).toBe(200);
    expect((await make()).status).toBe(409);
  });
});
