import { beforeAll, describe, expect, it } from 'vitest';
import { AppError } from '#base/errors.ts';
import { parseId, uuidv7 } from '#base/id.ts';
import type { Authenticator, Caller } from '#edge/http/http.ts';
import { engineDefinition } from '#test/fleet/test-fleet.ts';
import { type Answer, type AskOptions, type ScriptedOperations, useApi } from '#test/api/test-api.ts';

/** Signed-in users, by the name that stands in the place of a session's cookie. */
const signedIn = new Map<string, Caller>();

const authenticator: Authenticator = {
  authenticate({ rawHeaders }) {
    const caller = signedIn.get(rawHeaders[rawHeaders.findIndex((name) => name === 'x-test-user') + 1] ?? '');
    if (caller === undefined) throw new AppError('unauthorized');
    return caller;
  },
};

/** One engine that runs, and commands that hold at once. */
const operations: ScriptedOperations = {
  definitions: () => [engineDefinition({}, { id: 'plain' })],
  files: () => ({ readAtMs: 0, refused: null, leftOut: [] }),
  differences: () => [],
  pendingPrices: () => [],
  list: () => [
    {
      engineId: 'plain',
      phase: 'ready',
      sinceMs: 0,
      cause: null,
      causeDetail: null,
      retryAtMs: null,
      failures: 0,
      kind: 'openai',
      warnings: [],
      replicas: [],
      leases: 0,
      waiting: 0,
      startTimesMs: [],
      lastStart: null,
      rollout: null,
      bounds: { min: 0, max: 1, schedule: null },
    },
  ],
  async *logs() {},
  hosts: () => [],
  orphans: () => [],
  command: () => Promise.resolve(() => Promise.resolve()),
  reload: () => Promise.resolve({ ok: true, added: [], changed: ['plain'], removed: [] }),
};

const api = useApi({ authenticator, operations });
const ask = (user: string, path: string, options?: AskOptions): Promise<Answer> =>
  api().ask(path, { key: null, headers: { 'x-test-user': user }, ...options });

/** The author of the change to a target, as audited. */
async function authorOf(targetId: string) {
  const rows = await api().db.sql`
    SELECT action, actor_user_id, actor_key_id, request_id FROM audit_log WHERE target_id = ${targetId} ORDER BY id`;
  return [...rows];
}

describe('a signed-in user', () => {
  /** The first one: who has a key is a member of its organization. */
  const user = { id: '' };
  const by = (answer: Answer, action: string) => ({
    action,
    actor_user_id: user.id,
    actor_key_id: null,
    request_id: answer.headers.get('x-request-id'),
  });

  beforeAll(async () => {
    const key = await api().keys.verify(api().admin);
    const project = await api().accounts.findProject(key?.organizationId ?? '', key?.projectId ?? '');
    if (project === null) throw new Error('the first organization has no project');
    user.id = key?.userId ?? '';
    const actor = { kind: 'user', user, sessionId: uuidv7() } as const;
    const { organizationId } = project;
    const base = { actor, organizationId, project, organizationRole: 'member', platformRole: 'user' } as const;
    signedIn.set('reader', { ...base, scope: 'inference' });
    signedIn.set('manager', { ...base, scope: 'management', organizationRole: 'owner' });
    signedIn.set('operator', { ...base, scope: 'management', platformRole: 'admin' });
  });

  it('is rejected where scope and role do not allow the request', async () => {
    const refused = await Promise.all([
      ask('nobody', '/v1/keys'),
      ask('reader', '/v1/keys'),
      ask('reader', '/v1/projects', { body: { name: 'mine' } }),
      ask('manager', '/v1/organizations', { body: { name: 'mine' } }),
      ask('manager', '/v1/wallet/credits', { body: { amount: '1', reference: 'mine' } }),
    ]);
    expect(refused.map(({ status }) => status)).toEqual([401, 403, 403, 403, 403]);
  });

  it("sees only the usage of their own keys without access to the organization's", async () => {
    expect((await ask('reader', '/v1/usage/requests')).body.data).toEqual([]);
    expect((await ask('reader', '/v1/usage/summary')).body.totals.num_model_requests).toBe(0);
    const missing = await ask('reader', `/v1/usage/requests/${uuidv7()}`);
    expect([missing.status, missing.body.error.code]).toEqual([404, 'not_found']);
    const { status, body } = await ask('manager', '/v1/usage/requests');
    expect([status, body.data]).toEqual([200, []]);
  });

  it('creates, changes and revokes keys, which act for that user', async () => {
    const made = await ask('manager', '/v1/keys', { body: { name: 'mine' } });
    expect(made.status).toBe(201);
    const path = `/v1/keys/${made.body.id}`;
    const changed = await ask('manager', path, { method: 'PATCH', body: { name: 'ours' } });
    const revoked = await ask('manager', path, { method: 'DELETE' });
    expect(await authorOf(made.body.id)).toEqual([
      by(made, 'api_key.created'),
      by(changed, 'api_key.changed'),
      by(revoked, 'api_key.revoked'),
    ]);
    const [row] = await api().db.sql`SELECT user_id FROM api_keys WHERE id = ${parseId('key', made.body.id)}`;
    expect(row).toEqual({ user_id: user.id });
  });

  it('creates and archives projects, and has a separate hourly limit', async () => {
    const made = await ask('manager', '/v1/projects', { body: { name: 'mine' } });
    expect(made.status).toBe(201);
    const archived = await ask('manager', `/v1/projects/${made.body.id}/archive`, { method: 'POST' });
    expect(await authorOf(made.body.id)).toEqual([by(made, 'project.created'), by(archived, 'project.archived')]);
    const remaining = (answer: Answer): number => Number(answer.headers.get('x-ratelimit-remaining'));
    expect(remaining(archived)).toBe(remaining(made) - 1);
  });

  it('creates organizations and posts credits as a platform administrator', async () => {
    const opened = await ask('operator', '/v1/organizations', { body: { name: 'Water Works' } });
    expect(opened.status).toBe(201);
    expect(await authorOf(opened.body.id)).toEqual([by(opened, 'organization.created')]);
    const credit = { organization_id: opened.body.id, amount: '1', reference: 'first' };
    const booked = await ask('operator', '/v1/wallet/credits', { body: credit });
    expect(booked.status).toBe(201);
    expect(await authorOf(opened.body.id)).toEqual([by(opened, 'organization.created'), by(booked, 'wallet.credited')]);
    const keys = await api().db.sql`
      SELECT actor_user_id, actor_key_id FROM audit_log
      WHERE organization_id = ${parseId('org', opened.body.id)} AND action = 'api_key.created'`;
    expect([...keys]).toEqual([{ actor_user_id: user.id, actor_key_id: null }]);
  });

  it('sends engine commands as a platform administrator', async () => {
    expect((await ask('manager', '/v1/admin/engines/plain/stop', { method: 'POST' })).status).toBe(403);
    const stopped = await ask('operator', '/v1/admin/engines/plain/stop', { method: 'POST' });
    expect(stopped.status).toBe(202);
    expect(await authorOf('plain')).toEqual([by(stopped, 'engine.stop_ordered')]);
    const reloaded = await ask('operator', '/v1/admin/engines/reload', { method: 'POST' });
    expect(await authorOf('engines')).toEqual([by(reloaded, 'engines.reloaded')]);
  });

  it('deletes the stored content of a request', async () => {
    const requestId = uuidv7();
    api().contents.add({
      organizationId: signedIn.get('manager')?.organizationId ?? '',
      keyId: uuidv7(),
      requestId,
      request: '{}',
      response: '{}',
      responseTruncated: false,
    });
    const deleted = await ask('manager', `/v1/usage/requests/${requestId}/content`, { method: 'DELETE' });
    expect(deleted.status).toBe(200);
    expect(await authorOf(requestId)).toEqual([by(deleted, 'usage_content.deleted')]);
  });

  it("sees the organization's balance, without rate-limit headers", async () => {
    const { status, headers } = await ask('reader', '/v1/wallet');
    expect([status, headers.get('x-ratelimit-limit-requests')]).toEqual([200, null]);
  });
});
