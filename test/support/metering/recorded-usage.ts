import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll } from 'vitest';
import { parseId, uuidLowerBound } from '#base/id.ts';
import type { Metering, UsageRecord } from '#core/metering/metering.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { openTestBooks, type TestBooks } from './test-books.ts';

/** An organization as its callers know it, and its ids in the books. */
export interface TestOrganization {
  readonly id: string;
  readonly managementKey: string;
  readonly keyId: string;
  readonly projectId: string;
}

export interface UsageBench {
  readonly gateway: TestGateway;
  /** The books of the gateway's database, for records that no engine had to make. */
  readonly metering: Metering;
  openOrganization(): Promise<TestOrganization>;
  /** A key of scope `inference`; ids as they are shown. */
  makeKey(organization: TestOrganization): Promise<{ secret: string; keyId: string }>;
  /** Answers with the body, of the status that is expected. */
  ask(path: string, key: string, status?: number): Promise<Body>;
}

/** JSON of any shape; tests compare it. */
export type Body = ReturnType<JSON['parse']>;

/** A listening gateway of this test file's own. */
export function useGateway(): UsageBench {
  let running: { gateway: TestGateway; metering: Metering; books: TestBooks } | null = null;

  beforeAll(async () => {
    const gateway = await startGateway();
    const books = await openTestBooks({ db: gateway.db, databaseUrl: gateway.databaseUrl });
    running = { gateway, metering: books.metering, books };
  });

  afterAll(async () => {
    await running?.books.close();
    await running?.gateway.stop();
  });

  const opened = (): { gateway: TestGateway; metering: Metering } => {
    if (running === null) throw new Error('the gateway is started before the tests, not while they are collected');
    return running;
  };
  const ask = async (path: string, key: string, status = 200): Promise<Body> => {
    const response = await opened().gateway.request(path, { key });
    const text = await response.text();
    if (response.status !== status) throw new Error(`${path}: ${response.status} ${text}`);
    return JSON.parse(text);
  };
  return {
    get gateway() {
      return opened().gateway;
    },
    get metering() {
      return opened().metering;
    },
    ask,
    async openOrganization() {
      const name = `Organization ${randomBytes(6).toString('hex')}`;
      const made: Body = await (await opened().gateway.request('/v1/organizations', { body: { name } })).json();
      const credit = { organization_id: made.id, amount: '1000000000', reference: 'opening' };
      await opened().gateway.request('/v1/wallet/credits', { body: credit });
      const keys = await ask('/v1/keys', made.management_key);
      return {
        id: uuidOf('org', made.id),
        managementKey: made.management_key,
        keyId: uuidOf('key', keys.data[0].id),
        projectId: uuidOf('proj', keys.data[0].project_id),
      };
    },
    async makeKey(organization) {
      const body = { name: 'app', scope: 'inference' };
      const key = organization.managementKey;
      const made: Body = await (await opened().gateway.request('/v1/keys', { key, body })).json();
      return { secret: made.secret, keyId: made.id };
    },
  };
}

export function uuidOf(prefix: 'org' | 'key' | 'proj', id: string): string {
  const uuid = parseId(prefix, id);
  if (uuid === null) throw new Error(`${id} is no ${prefix} id`);
  return uuid;
}

/** A request id of any moment, also of one before the last. */
export function idAt(timeMs: number): string {
  return uuidLowerBound(timeMs).slice(0, 24) + randomBytes(6).toString('hex');
}

/** A record of an organization; what a test does not name is of no account to it. */
export function recordOf(
  organization: Pick<TestOrganization, 'id' | 'keyId' | 'projectId'>,
  timeMs: number,
  fields: Partial<UsageRecord> = {},
): UsageRecord {
  return {
    id: idAt(timeMs),
    organizationId: organization.id,
    projectId: organization.projectId,
    keyId: organization.keyId,
    model: 'small',
    endpoint: '/v1/chat/completions',
    stream: false,
    serviceTier: 'default',
    status: 200,
    outcome: 'completed',
    reason: null,
    cacheHit: false,
    usage: { inputTokens: 10, cachedTokens: 4, cacheWriteTokens: 0, outputTokens: 5, reasoningTokens: 2 },
    usageSource: 'engine',
    costPicoUsd: 3_000_000n,
    writtenOffPicoUsd: 0n,
    priceVersionId: idAt(timeMs),
    queuedMs: 1,
    firstByteMs: 20,
    totalMs: 30,
    clientRequestId: null,
    ...fields,
  };
}
