import { afterEach, beforeEach, expect } from 'vitest';
import { parseId } from '#base/id.ts';
import type { Alert } from '#core/alerts/alerts.ts';
import { type Answer as ApiAnswer, type TestApi, startApi } from '#test/api/test-api.ts';
import { type Answer, type Receiver, startReceiver } from './receiver.ts';

/** An organization with webhooks, and the servers that these go to; new for each test. */

export const [url, hourMs] = ['https://hooks.example/in', 3_600_000];

const hosts = {
  'hooks.example': ['93.184.215.14'],
  'slow.example': ['93.184.215.15'],
  'inside.example': ['10.0.0.5'],
  'both.example': ['93.184.215.14', '127.0.0.1'],
  'mapped.example': ['::ffff:169.254.169.254'],
  'nat64.example': ['64:ff9b::7f00:1'],
  'compatible.example': ['::7f00:1'],
};

export interface Webhook {
  readonly id: string;
  readonly secret: string;
}

export type Exceeded = Extract<Alert, { readonly type: 'budget.exceeded' }>;

/** The event of a budget, as the room of budgets sends it. */
export const budgetData = (scopeId: string): Exceeded['data'] => ({
  budget_id: 'budget_1',
  scope_type: 'user',
  scope_id: scopeId,
  period: 'daily',
  models: null,
  period_start: '2026-11-24',
  resets_at: 1_795_651_200,
  mode: 'hard',
  amount: '10',
  spent: '11',
  currency: 'USD',
  percent: 100,
});

export const status = (code: number, headers = {}): Answer => ({ status: code, headers });

export function useScene() {
  let receiver: Receiver | null = null;
  let api: TestApi | null = null;
  let tenant = { id: '', key: '' };

  function there<T>(value: T | null): T {
    if (value === null) throw new Error('the scene is there in tests alone');
    return value;
  }

  async function deliver(alerts = there(api).alerts): Promise<void> {
    await alerts.deliver();
    await alerts.settled();
  }

  const ask = (path: string, method = 'GET', body?: object): Promise<ApiAnswer> =>
    there(api).ask(path, { method, key: tenant.key, ...(body !== undefined && { body }) });

  beforeEach(async () => {
    receiver = await startReceiver(hosts);
    api = await startApi({ webhooks: { outbound: receiver.outbound, timeoutMs: 1000, allowedHosts: [] } });
    tenant = await api.organization();
    // No one had to be notified of the keys that organizations begin with.
    await deliver();
  });

  afterEach(async () => {
    await api?.stop();
    await receiver?.close();
  });

  return {
    get api() {
      return there(api);
    },
    get receiver() {
      return there(receiver);
    },
    get tenant() {
      return tenant;
    },
    deliver,
    ask,
    make: async (body: object = {}): Promise<Webhook> => {
      const made = await ask('/v1/webhooks', 'POST', { url, ...body });
      expect(made.status).toBe(201);
      return made.body;
    },
    organizationId: (): string => parseId('org', tenant.id) ?? '',
    spent: (name = 'Team'): Exceeded => ({
      organizationId: parseId('org', tenant.id) ?? '',
      type: 'budget.exceeded',
      data: budgetData(name),
    }),
    read: async ({ id }: Webhook) => (await ask(`/v1/webhooks/${id}`)).body,
    listed: async ({ id }: Webhook) => (await ask(`/v1/webhooks/${id}/deliveries`)).body.data,
  };
}
