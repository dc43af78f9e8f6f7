import type { Clock } from '#base/clock.ts';
import type { Config } from '#base/config/config.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { type Asking, type BatchWorker, createBatchWorker, type LineAnswer } from '#core/batches/batches.ts';
import { createOwnExchange, type HeldKeys } from '#edge/http/http.ts';
import { hasEngineTools, type Inference, refuseModel } from '#edge/inference/inference.ts';
import type { Foundation } from './foundation.ts';
import type { Gateway } from './gateway.ts';
import type { Part } from './lifecycle.ts';

export interface BatchesPartOptions {
  readonly config: Pick<Config, 'batches' | 'limits' | 'process'>;
  readonly foundation: Foundation;
  readonly gateway: Gateway;
  readonly inference: Inference;
  readonly heldKeys: HeldKeys;
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
}

const tickMs = 1000;

/** Two parts: batches send no requests once requests are drained, and requests sent before are drained too. */
export interface BatchesParts {
  readonly asking: Part;
  readonly end: Part;
}

/** Milliseconds that a stop waits until results are written, which takes less. */
const closeMs = 10_000;

/** Runs batches while requests are accepted: each line of a batch is a request on the same path. */
export function createBatchesParts(options: BatchesPartOptions): BatchesParts {
  const { config, foundation, gateway, db, clock, log } = options;
  const worker = createBatchWorker({
    db,
    clock,
    log,
    files: gateway.files,
    asking: createAsking(options),
    gatewayId: foundation.coordination.gateways.id,
    leaseMs: config.process.leaseMs,
    linesMax: config.batches.linesMax,
    concurrency: config.batches.concurrency,
    bodyBytesMax: config.limits.bodyBytesMax,
  });
  let running: BatchWorker | null = null;
  const asking: Part = {
    name: 'batches',
    jobs: [{ name: 'run batches', everyMs: tickMs, where: 'every', run: async () => running?.tick() }],
    start() {
      running = worker;
    },
    stop() {
      running = null;
      worker.stopAsking();
    },
  };
  return { asking, end: { name: 'end of batches', stop: () => worker.close(closeMs) } };
}

function createAsking({ foundation, gateway, inference, heldKeys }: BatchesPartOptions): Asking {
  const { keys } = foundation;
  return {
    async keyOf({ organizationId, keyId }) {
      const held = await keys.heldOf({ organizationId, keyId });
      const key = held === null ? null : await keys.verifyHeld(held);
      return held === null || key === null ? null : { ...held, maxConcurrency: key.maxConcurrency };
    },
    async refuseModel(key, endpoint, model) {
      const known = await keys.verifyHeld(key);
      return refuseModel(gateway.catalog, { endpoint, model, usable: known?.usableModels ?? null, tier: 'flex' });
    },
    hasEngineTools,
    modelId: (name) => gateway.catalog.find(name)?.id ?? name,
    conclude: (keyId, names) => gateway.idempotency.conclude(keyId, names),
    kept: (keyId, name) => gateway.idempotency.kept(keyId, name),
    forget: (keyId, names) => gateway.idempotency.forget(keyId, names),
    async ask({ key, projectId, endpoint, body, addedBytes, idempotencyKey, isDry, note, signal }) {
      const headers = {
        'content-type': 'application/json',
        'idempotency-key': idempotencyKey,
        'x-client-request-id': note,
        ...(isDry && { 'x-headgate-dry-run': 'true' }),
      };
      const exchange = createOwnExchange(body, headers);
      heldKeys.hold(exchange.incoming, key, { projectId, ended: 'The key of the batch was revoked or has expired.' });
      await inference.serve(endpoint, exchange, signal, { isWholeOrFree: true, showsEachLimit: true, addedBytes });
      return (await exchange.answer()) ?? cut;
    },
  };
}

/** Answer for a line that got neither an answer nor a rejection; the line is sent again. */
const cut: LineAnswer = { status: 502, headers: {}, body: Buffer.from('{"error":{"code":"upstream_error"}}') };
