import { uuidv7 } from '#base/id.ts';
import { createLog } from '#base/log.ts';
import {
  type Asking,
  type BatchWorker,
  createBatchWorker,
  type LineAnswer,
  type LineRequest,
} from '#core/batches/batches.ts';
import type { KeptAnswer } from '#core/stored-requests/stored-requests.ts';
import { createTurnableClock, type TestApi, useApi } from '#test/api/test-api.ts';
import { outputOf, uploadFile } from '#test/inference/batch-bench.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
export type Answering = (request: LineRequest, time: number) => Promise<LineAnswer>;

export interface Scripted {
  readonly worker: BatchWorker;
  /** Requests, as they were asked. */
  readonly asked: LineRequest[];
}

export interface WorkSettings {
  readonly leaseMs?: number;
  /** Why the model is rejected; null where it is offered. */
  readonly refusal?: () => string | null;
  /** Answers and charges, by Idempotency-Key. */
  readonly charged?: Map<string, KeptAnswer>;
  /** Takes the Idempotency-Keys of which nothing more is charged. */
  readonly concluded?: Set<string>;
  /** Told of Idempotency-Keys whose answers are dropped. */
  readonly forget?: (keys: readonly string[]) => Promise<void>;
  readonly maxConcurrency?: () => number | null;
  /** Checks whether the key of the batch has ended. */
  readonly isKeyGone?: () => boolean;
  /** Runs before the key is read. */
  readonly beforeKey?: () => Promise<unknown>;
}

export const answerOf = (status: number, body: object = {}, headers: Record<string, string> = {}): LineAnswer => ({
  status,
  headers: { 'x-request-id': uuidv7(), ...headers },
  body: Buffer.from(JSON.stringify(body)),
});
export const numberOf = ({ note }: LineRequest): number => Number(note.split('/')[1]) - 1;

/** Runs until it is ended. */
export const untilEnded: Answering = ({ signal }) =>
  new Promise((resolve) => signal.addEventListener('abort', () => resolve(answerOf(503))));

export interface ScriptedBatches {
  readonly api: () => TestApi;
  readonly turn: (ms: number) => void;
  readonly work: (answering: Answering, settings?: WorkSettings) => Scripted;
  /** Makes a batch of the lines, or of a file that is there. */
  readonly start: (text: string, fields?: object, fileId?: string) => Promise<Body>;
  readonly read: (id: string) => Promise<Body>;
  readonly drive: (scripted: Scripted, id: string, stepMs?: number) => Promise<Body>;
  /** Lets a worker work until it has asked something. */
  readonly untilAsked: (scripted: Scripted) => Promise<unknown>;
  readonly lines: (fileId: string | null) => Promise<readonly Body[]>;
}

/** Batches whose requests are answered as a test says, on a clock that it turns. */
export function useScriptedBatches(): ScriptedBatches {
  const api = useApi();
  const clock = createTurnableClock();
  const turn = (ms: number): void => {
    clock.turn(ms);
    api().turnClock(ms);
  };

  function work(answering: Answering, settings: WorkSettings = {}): Scripted {
    const asked: LineRequest[] = [];
    const asking: Asking = {
      async keyOf({ organizationId, keyId }) {
        await settings.beforeKey?.();
        const held = await api().keys.heldOf({ organizationId, keyId });
        return held === null || settings.isKeyGone?.() === true
          ? null
          : { ...held, maxConcurrency: settings.maxConcurrency?.() ?? null };
      },
      hasEngineTools: () => false,
      modelId: (name) => name,
      refuseModel: () => Promise.resolve(settings.refusal?.() ?? null),
      conclude(_keyId, keys) {
        for (const key of keys) settings.concluded?.add(key);
        return Promise.resolve(keys.filter((key) => settings.charged?.has(key) === true));
      },
      kept: (_keyId, key) => Promise.resolve(settings.charged?.get(key) ?? null),
      forget: async (_keyId, keys) => settings.forget?.(keys),
      ask(request) {
        asked.push(request);
        return answering(request, asked.filter((one) => one.note === request.note).length);
      },
    };
    const options = { db: api().db, clock, log: createLog('silent'), files: api().files, asking };
    const bounds = { leaseMs: settings.leaseMs ?? 30_000, linesMax: 1000, bodyBytesMax: 1_048_576, concurrency: 8 };
    return { worker: createBatchWorker({ ...options, ...bounds, gatewayId: uuidv7() }), asked };
  }

  const gateway = () => ({ url: api().url, key: api().admin });

  async function start(text: string, fields: object = {}, fileId?: string): Promise<Body> {
    const file: Body = fileId === undefined ? await uploadFile(gateway(), text) : { id: fileId };
    const body = { input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h', ...fields };
    return (await api().ask('/v1/batches', { method: 'POST', body })).body;
  }

  const read = async (id: string): Promise<Body> => (await api().ask(`/v1/batches/${id}`)).body;
  const final = ['completed', 'failed', 'expired', 'cancelled'];

  /** Lets a worker work until a batch has ended; each time that it looks `stepMs` have passed. */
  async function drive({ worker }: Scripted, id: string, stepMs = 500): Promise<Body> {
    const ended = await eventually(async () => {
      await worker.tick();
      turn(stepMs);
      const batch = await read(id);
      return final.includes(batch.status) ? batch : null;
    });
    worker.stopAsking();
    await worker.close(60_000);
    return ended;
  }

  async function lines(fileId: string | null): Promise<readonly Body[]> {
    const request = (path: string): Promise<Response> =>
      fetch(new URL(path, api().url), { headers: { authorization: `Bearer ${api().admin}` } });
    return outputOf({ request, key: '' } as unknown as Parameters<typeof outputOf>[0], fileId);
  }

  const untilAsked = ({ worker, asked }: Scripted): Promise<unknown> =>
    eventually(async () => {
      await worker.tick();
      return asked.length > 0;
    });
  return { api, turn, work, start, read, drive, untilAsked, lines };
}
