import { describe, expect, it, vi } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import type { LineAnswer } from '#core/batches/batches.ts';
import { compress, type KeptAnswer } from '#core/stored-requests/stored-requests.ts';
import { linesOf } from '#test/inference/batch-bench.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { answerOf, numberOf, untilEnded, useScriptedBatches } from './scripted-batches.ts';

/** Outcomes of requests whose worker loses the batch, and of a batch whose model is unavailable. */

const { api, turn, work, start, read, drive, untilAsked, lines } = useScriptedBatches();
const leaseMs = 30_000;

const keptOf = async (body: object): Promise<KeptAnswer> => ({
  requestId: uuidv7(),
  answer: await compress(Buffer.from(JSON.stringify(body))),
});
const refusal = (): LineAnswer => answerOf(400, { error: { code: 'model_not_found', param: 'model' } });

describe('a worker that has lost its batch', () => {
  it('aborts its requests when its claim expires, also without a connection', async () => {
    const former = work(untilEnded, { leaseMs: 1000 });
    const { id } = await start(linesOf(3));
    await untilAsked(former);
    // From here on it hears nothing.
    await eventually(() => Promise.resolve(former.asked.every(({ signal }) => signal.aborted)));
    const asked = former.asked.length;
    turn(leaseMs);
    const batch = await drive(
      work(() => Promise.resolve(answerOf(200))),
      id,
    );
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 3, completed: 3, failed: 0 } });
    expect(former.asked).toHaveLength(asked);
  });

  it('writes none of the answers that come when its claim expires', async () => {
    const ended = Promise.withResolvers<undefined>();
    const former = work(async ({ signal }) => {
      signal.addEventListener('abort', () => ended.resolve(undefined));
      await ended.promise;
      return answerOf(200, { by: 'former' });
    });
    const { id } = await start(linesOf(3));
    await untilAsked(former);
    turn(leaseMs + 1);
    const next = work(() => Promise.resolve(answerOf(200, { by: 'next' })));
    await untilAsked(next);
    await former.worker.tick();
    const batch = await drive(next, id, 0);
    expect(batch.request_counts).toEqual({ total: 3, completed: 3, failed: 0 });
    const output = await lines(batch.output_file_id);
    expect(output.map(({ response }) => response.body)).toEqual(Array.from({ length: 3 }, () => ({ by: 'next' })));
  });
});

describe('a stopping worker', () => {
  it('keeps its batch until its running requests are answered, beyond the lease', async () => {
    const { promise: mayAnswer, resolve: answer } = Promise.withResolvers<undefined>();
    const answering = async (by: string): Promise<LineAnswer> => {
      if (by === 'former') await mayAnswer;
      return answerOf(200, { by });
    };
    const former = work(() => answering('former'), { leaseMs: 1000 });
    const { id } = await start(linesOf(3));
    await untilAsked(former);
    former.worker.stopAsking();
    const next = work(() => answering('next'), { leaseMs: 1000 });
    for (const untilMs = Date.now() + 3000; Date.now() < untilMs;) {
      await next.worker.tick();
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    expect([next.asked, former.asked.filter(({ signal }) => signal.aborted)]).toEqual([[], []]);
    answer(undefined);
    await former.worker.close(60_000);
    const batch = await drive(next, id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { completed: 3 } });
    const output = await lines(batch.output_file_id);
    // A request that was on its way to be asked may follow the first.
    expect(output.filter(({ response }) => response.body.by === 'former')).toHaveLength(former.asked.length);
  });

  it('aborts running requests when the batch is cancelled', async () => {
    const scripted = work(untilEnded, { leaseMs: 1000 });
    const { id } = await start(linesOf(1));
    await untilAsked(scripted);
    scripted.worker.stopAsking();
    await api().ask(`/v1/batches/${id}/cancel`, { method: 'POST' });
    await eventually(async () => scripted.asked.every(({ signal }) => signal.aborted));
    await scripted.worker.close(60_000);
    expect(await drive(work(untilEnded), id)).toMatchObject({ status: 'cancelled', request_counts: { completed: 0 } });
  });

  it('sends nothing when it was stopped while it checked the model', async () => {
    let isGone = true;
    const refusal = (): string | null => {
      if (isGone) return 'The model "chat" does not exist.';
      scripted.worker.stopAsking();
      return null;
    };
    const midway = work(() =>
      Promise.resolve(isGone ? answerOf(400, { error: { code: 'model_not_found' } }) : answerOf(200)),
    );
    const { id } = await start(linesOf(2));
    await eventually(async () => {
      await midway.worker.tick();
      return (await read(id)).waiting_for === 'model_not_found';
    });
    midway.worker.stopAsking();
    await midway.worker.close(60_000);
    isGone = false;
    turn(120_000);
    const scripted = work(untilEnded, { refusal });
    await scripted.worker.tick();
    await scripted.worker.close(60_000);
    expect(scripted.asked).toEqual([]);
    expect(
      await drive(
        work(() => Promise.resolve(answerOf(200))),
        id,
      ),
    ).toMatchObject({ status: 'completed' });
  });
});

describe('a batch all of whose requests are answered', () => {
  it.each(['the window', 'the key'])('is completed, also when %s ends before the files are written', async (what) => {
    const { promise: mayAnswer, resolve: answer } = Promise.withResolvers<undefined>();
    const former = work(async () => {
      await mayAnswer;
      return answerOf(200);
    });
    const { id } = await start(linesOf(1));
    await untilAsked(former);
    former.worker.stopAsking();
    answer(undefined);
    await former.worker.close(60_000);
    const next = work(untilEnded, what === 'the key' ? { isKeyGone: () => true } : {});
    if (what === 'the window') turn(86_400_001);
    const batch = await drive(next, id, 0);
    expect(batch).toMatchObject({ status: 'completed', errors: null, request_counts: { total: 1, completed: 1 } });
    expect(await lines(batch.output_file_id)).toHaveLength(1);
  });

  it('keeps both of its files when one gets no rows while the other is written', async () => {
    const scripted = work((request) => Promise.resolve(answerOf(numberOf(request) === 0 ? 422 : 200)));
    const { files } = api();
    const createFile = files.create.bind(files);
    const create = vi.spyOn(files, 'create').mockImplementation(async (...args) => {
      const writer = await createFile(...args);
      let rows = 0;
      return {
        ...writer,
        async add(bytes) {
          await writer.add(bytes);
          rows += 1;
          if (rows !== 50 && rows !== 150) return;
          turn(400_000);
          await files.deleteOld();
        },
      };
    });
    const { id } = await start(linesOf(202));
    const batch = await drive(scripted, id);
    create.mockRestore();
    expect(batch).toMatchObject({ status: 'completed', request_counts: { completed: 201, failed: 1 } });
    expect(await lines(batch.error_file_id)).toHaveLength(1);
    expect(await lines(batch.output_file_id)).toHaveLength(201);
  });
});

describe('a charged answer that no worker recorded', () => {
  it.each(['cancelled', 'expired'])(
    'is in the output of a batch that is %s, and nothing else is charged',
    async (how) => {
      const former = work(untilEnded);
      const { id } = await start(linesOf(4));
      await untilAsked(former);
      if (how === 'cancelled') await api().ask(`/v1/batches/${id}/cancel`, { method: 'POST' });
      turn(how === 'cancelled' ? leaseMs + 1 : 86_400_001);
      const kept = await keptOf({ answer: 'charged' });
      const concluded = new Set<string>();
      const next = work(untilEnded, { charged: new Map([[`§${id}/1`, kept]]), concluded });
      const batch = await drive(next, id, 0);
      expect(batch).toMatchObject({ status: how, request_counts: { total: 4, completed: 1, failed: 0 } });
      expect(await lines(batch.output_file_id)).toMatchObject([
        {
          custom_id: 'line-1',
          response: { status_code: 200, request_id: kept.requestId, body: { answer: 'charged' } },
          error: null,
        },
      ]);
      const errors = await lines(batch.error_file_id);
      expect(errors.map(({ custom_id: name }) => name)).toEqual(['line-0', 'line-2', 'line-3']);
      expect([...concluded]).toEqual(Array.from({ length: 4 }, (_, n) => `§${id}/${n}`));
      expect(next.asked).toEqual([]);
    },
  );

  it('completes a batch without other open requests, although its window is over', async () => {
    const former = work(untilEnded);
    const { id } = await start(linesOf(1));
    await untilAsked(former);
    turn(86_400_001);
    const charged = new Map([[`§${id}/0`, await keptOf({ answer: 'charged' })]]);
    const batch = await drive(work(untilEnded, { charged }), id, 0);
    expect(batch).toMatchObject({ status: 'completed', errors: null, request_counts: { total: 1, completed: 1 } });
  });

  it('replaces a later failure of the same request', async () => {
    const { id } = await start(linesOf(2));
    const charged = new Map([[`§${id}/0`, await keptOf({ answer: 'charged' })]]);
    const answering = (status: number) => Promise.resolve(answerOf(status, { error: { code: 'upstream_error' } }));
    const scripted = work((request) => answering(numberOf(request) === 0 ? 422 : 200), { charged });
    const batch = await drive(scripted, id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 2, completed: 2, failed: 0 } });
    expect(batch.error_file_id).toBeNull();
    expect((await lines(batch.output_file_id)).map(({ response }): Body => response.body)[0]).toEqual({
      answer: 'charged',
    });
  });
});

describe('the stored answers of a batch', () => {
  it('are dropped once the files exist, and not before', async () => {
    const seen: { readonly keys: readonly string[]; readonly status: string }[] = [];
    const forget = async (keys: readonly string[]): Promise<void> => {
      seen.push({ keys, status: (await read(id)).status });
    };
    const scripted = work((request) => Promise.resolve(answerOf(numberOf(request) === 3 ? 422 : 200)), { forget });
    const { id } = await start(linesOf(701));
    const batch = await drive(scripted, id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { completed: 700, failed: 1 } });
    expect(seen.flatMap(({ keys }) => keys)).toEqual(Array.from({ length: 701 }, (_, n) => `§${id}/${n}`));
    expect(seen.map(({ keys, status }) => [keys.length, status])).toEqual([
      [500, 'completed'],
      [201, 'completed'],
    ]);
  });

  it('do not fail a completed batch when they cannot be dropped', async () => {
    const forget = (): Promise<void> => Promise.reject(new Error('the database is away'));
    const scripted = work(() => Promise.resolve(answerOf(200)), { forget });
    const { id } = await start(linesOf(2));
    expect(await drive(scripted, id)).toMatchObject({ status: 'completed', request_counts: { completed: 2 } });
  });

  it('are not dropped when the batch sent no request', async () => {
    const forgotten: string[] = [];
    const forget = async (keys: readonly string[]): Promise<void> => void forgotten.push(...keys);
    const { id } = await start('no line');
    expect(await drive(work(untilEnded, { forget }), id)).toMatchObject({ status: 'failed' });
    expect(forgotten).toEqual([]);
  });
});

describe('a batch whose model is removed midway', () => {
  it('waits with waiting_for model_not_found, and continues when the model is back', async () => {
    let model: 'there' | 'gone' | 'back' = 'there';
    const settings = { refusal: () => (model === 'gone' ? 'The model "chat" does not exist.' : null) };
    const scripted = work((request) => {
      if (numberOf(request) === 4 && model === 'there') model = 'gone';
      return Promise.resolve(model === 'gone' ? refusal() : answerOf(200));
    }, settings);
    const { id } = await start(linesOf(12));
    const waiting = await eventually(async () => {
      await scripted.worker.tick();
      turn(100);
      const batch = await read(id);
      return batch.waiting_for === null ? null : batch;
    });
    expect(waiting).toMatchObject({ status: 'in_progress', waiting_for: 'model_not_found' });
    expect(waiting.request_counts.failed).toBe(0);
    const asked = scripted.asked.length;
    // Nothing is asked while it is unavailable, however often it is polled.
    for (let times = 0; times < 20; times += 1) {
      await scripted.worker.tick();
      turn(60_000);
    }
    expect(scripted.asked).toHaveLength(asked);
    model = 'back';
    const batch = await drive(scripted, id);
    expect(batch).toMatchObject({
      status: 'completed',
      waiting_for: null,
      request_counts: { total: 12, completed: 12, failed: 0 },
    });
  });

  it('fails after an hour without the model, with its answers, also on another worker', async () => {
    const why = 'The model "chat" does not exist; no available model supports this endpoint.';
    const scripted = work((request) => Promise.resolve(numberOf(request) === 0 ? answerOf(200) : refusal()), {
      refusal: () => (scripted.asked.length > 0 ? why : null),
    });
    const { id } = await start(linesOf(3));
    await eventually(async () => {
      await scripted.worker.tick();
      turn(100);
      return (await read(id)).waiting_for === 'model_not_found';
    });
    scripted.worker.stopAsking();
    await scripted.worker.close(60_000);
    const next = work(() => Promise.resolve(answerOf(200)), { refusal: () => why });
    for (let minute = 0; minute < 59; minute += 1) {
      turn(60_000);
      await next.worker.tick();
    }
    expect(await read(id)).toMatchObject({ status: 'in_progress', waiting_for: 'model_not_found' });
    const batch = await drive(next, id, 60_000);
    expect(batch).toMatchObject({
      status: 'failed',
      request_counts: { total: 3, completed: 1, failed: 0 },
      errors: { data: [{ code: 'model_not_found', message: expect.stringContaining(why), line: null }] },
    });
    expect(await lines(batch.output_file_id)).toHaveLength(1);
    expect((await lines(batch.error_file_id)).map(({ error }) => error.code)).toEqual([
      'model_not_found',
      'model_not_found',
    ]);
    expect(next.asked).toEqual([]);
  });

  it('retries when the model has no flex price any more', async () => {
    const error = { code: 'invalid_value', param: 'service_tier' };
    const scripted = work((_request, time) => Promise.resolve(time === 1 ? answerOf(400, { error }) : answerOf(200)));
    const { id } = await start(linesOf(2));
    expect(await drive(scripted, id)).toMatchObject({ status: 'completed', request_counts: { completed: 2 } });
  });

  it.each([403, 418, 451, 599])('retries after the unexpected status %d', async (status) => {
    const scripted = work((_request, time) => Promise.resolve(answerOf(time <= 3 ? status : 200, {})));
    const { id } = await start(linesOf(1));
    expect(await drive(scripted, id)).toMatchObject({ request_counts: { completed: 1, failed: 0 } });
  });
});
