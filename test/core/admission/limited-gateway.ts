import { chatBody, openOrganization, standinFile, writeEngines, type Body } from '#test/inference/inference-gateway.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { startRedis, type TestRedis } from '#test/redis.ts';

export type StoreName = 'memory' | 'redis';
export const storeNames: readonly StoreName[] = ['memory', 'redis'];

export interface KeyOptions {
  readonly requests_per_minute?: number | null;
  readonly max_concurrency?: number | null;
  readonly tokens_per_minute?: number | null;
  readonly monthly_token_limit?: number | null;
}

export interface LimitedKey {
  readonly id: string;
  readonly secret: string;
  /** One chat request of 8 tokens at most, unless `fields` say otherwise. */
  chat(fields?: object, gateway?: TestGateway): Promise<Response>;
}

export const env = { HEADGATE_MAX_ACTIVE_KEYS: '100000' };

/** A gateway on a store, with what the tests of limits do on it. */
export interface StoreBench {
  /** Ends the gateway, its engines and its Redis. */
  close(): Promise<void>;
  readonly gateway: TestGateway;
  readonly redis: TestRedis | null;
  readonly enginesDir: string;
  /** A key with these limits and no others, of an organization with a balance of its own. */
  key(limits?: KeyOptions, owner?: string): Promise<LimitedKey>;
  organization(usd: string): Promise<{ id: string; key: string }>;
}

const unlimited = {
  requests_per_minute: null,
  max_concurrency: null,
  tokens_per_minute: null,
  monthly_token_limit: null,
};

/** The caller closes it. */
export async function openStore(name: StoreName, more: Readonly<Record<string, string>> = {}): Promise<StoreBench> {
  const redis = name === 'redis' ? await startRedis() : null;
  const enginesDir = writeEngines({ chat: standinFile('chat'), other: standinFile('other') });
  const shared = redis === null ? {} : { redisUrl: redis.url };
  const gateway = await startGateway({ ...shared, enginesDir, env: { ...env, ...more } });
  await (await gateway.request('/v1/chat/completions', { body: chatBody({}) })).text();
  return {
    gateway,
    redis,
    enginesDir,
    async close() {
      await gateway.stop();
      await redis?.stop();
    },
    organization: (usd) => openOrganization(gateway, usd),
    key: (limits = {}, owner = gateway.key) => makeKey(gateway, limits, owner),
  };
}

export async function makeKey(gateway: TestGateway, limits: KeyOptions, owner: string): Promise<LimitedKey> {
  const body = { name: 'limited', scope: 'inference', ...unlimited, ...limits };
  const made: Body = await (await gateway.request('/v1/keys', { body, key: owner })).json();
  return {
    id: made.id,
    secret: made.secret,
    chat: (fields = {}, through = gateway) =>
      through.request('/v1/chat/completions', { body: chatBody(fields), key: made.secret }),
  };
}

/** The tokens that are reserved for `chatBody({})`: the body's bytes over 4 and its limit. */
export function estimateOf(fields: object, outputTokens: number): number {
  return Math.ceil(JSON.stringify(chatBody(fields)).length / 4) + outputTokens;
}
