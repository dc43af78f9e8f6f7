import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '#base/clock.ts';
import { ConfigError } from '#base/config-error.ts';
import type { RedisConfig } from '#base/config/config.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { connectRedis, RedisAwayError, type RedisStore } from '#base/redis/redis.ts';
import { createGateways, type Gateways, heartbeatMs, type Message, readNamespace } from '#core/gateways/gateways.ts';
import { changesKnownMs, type Keys } from '#core/keys/keys.ts';
import type { Part } from './lifecycle.ts';

const marksMs = 600_000;

/** Redis, as the gateways of one database share it. */
export interface SharedStore {
  /** Null without REDIS_URL: this gateway is the only one, and keeps shared state in its memory. */
  readonly store: RedisStore | null;
  /** Prefix of all names in Redis. */
  readonly prefix: string;
}

/** @throws ConfigError when REDIS_URL cannot be reached */
export async function openSharedStore({ url }: RedisConfig, db: Db, log: Log): Promise<SharedStore> {
  if (url === null) return { store: null, prefix: '' };
  const prefix = await readNamespace(db);
  try {
    return { store: await connectRedis(url, log), prefix };
  } catch (error) {
    if (!(error instanceof RedisAwayError)) throw error;
    const reason = error.cause instanceof Error ? error.cause.message : error.message;
    throw new ConfigError(`REDIS_URL: Redis cannot be used (${reason}).`, error);
  }
}

/** The gateways of the database, and their messages to each other. A single gateway sends none. */
export interface Coordination {
  readonly gateways: Gateways;
  /** Registers the handler for messages of this kind. A message is acknowledged when its handler is done. */
  onMessage(kind: MessageKind, handle: (message: Message) => Promise<void> | void): void;
  /** Notifies the other gateways of a committed change; resolves when each applies it, or has had time to poll it. */
  makeKnown(message: Message & { readonly kind: MessageKind }): Promise<void>;
  /** Returns, after the start, ids of stopped gateways that had the place of this gateway before. */
  formerIds(): readonly string[];
  /** Throws ConfigError at its start when another gateway runs on the database and nothing would be shared with it. */
  readonly part: Part;
}

/**
 * Kinds of messages. `key`, `organization`: one was changed. `budgets`, `rate limits`: some were changed.
 * `engine files`: read them again. `collect`: write what runs here for an organization into Redis again.
 * `web addresses`: refresh them.
 */
type MessageKind = 'key' | 'organization' | 'budgets' | 'rate limits' | 'engine files' | 'collect' | 'web addresses';

export interface CoordinationParts extends SharedStore {
  readonly db: Db;
  readonly clock: Clock;
  readonly log: Log;
  readonly gatewayDir: string;
  /** Number of this gateway among those that share the gateway folder. */
  readonly slot: number;
  readonly keys: Keys;
}

export function createCoordination(parts: CoordinationParts): Coordination {
  const gateways = createGateways(parts);
  const handlers = new Map<string, (message: Message) => Promise<void> | void>();
  let formerIds: readonly string[] = [];
  gateways.onMessage(async (message) => handlers.get(message['kind'] ?? '')?.(message));
  const coordination: Coordination = {
    gateways,
    onMessage: (kind, handle) => void handlers.set(kind, handle),
    async makeKnown(message) {
      if (parts.store !== null) await makeKnown(parts, coordination, message);
    },
    formerIds: () => formerIds,
    part: {
      name: 'gateways of the database',
      jobs: [
        { name: 'heartbeat', everyMs: heartbeatMs, where: 'every', run: () => gateways.beat() },
        { name: 'lower marks', everyMs: marksMs, where: 'every', run: () => gateways.tokenWatermarks.lower() },
      ],
      async start() {
        formerIds = await gateways.start();
      },
      stop: () => gateways.stop(),
    },
  };
  if (parts.store !== null) shareKeyChanges(parts, coordination);
  return coordination;
}

/** Waits until every gateway applies a committed change: each acknowledges it, or has had time to poll it. */
async function makeKnown({ clock, log }: CoordinationParts, { gateways }: Coordination, message: Message) {
  const sinceMs = clock.monotonicMs();
  try {
    const missing = await gateways.broadcast(message);
    if (missing.length === 0) return;
  } catch (error) {
    log.warn({ err: error, message }, 'other gateways were not notified of a change; each finds it within two seconds');
  }
  await sleep(Math.max(0, sinceMs + changesKnownMs - clock.monotonicMs()));
}

function shareKeyChanges(parts: CoordinationParts, coordination: Coordination): void {
  const { keys } = parts;
  keys.onChanged(({ keyId }) => makeKnown(parts, coordination, { kind: 'key', keyId }));
  coordination.onMessage('key', async ({ keyId }) => {
    if (keyId !== undefined) await keys.refresh(keyId);
  });
  keys.onOrganizationChanged((organizationId) =>
    makeKnown(parts, coordination, { kind: 'organization', organizationId }),
  );
  coordination.onMessage('organization', async ({ organizationId }) => {
    if (organizationId !== undefined) await keys.refreshOrganizations(organizationId);
  });
}
