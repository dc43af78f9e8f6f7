import { describe, expect, it } from 'vitest';
import { systemAuthor } from '#core/audit/audit.ts';
import { formatId, parseId, uuidv7 } from '#base/id.ts';
import { defaultKeyToggles } from '#core/keys/keys.ts';
import { type Answer, useApi } from '#test/api/test-api.ts';

const api = useApi();
const hourMs = 3_600_000;

interface Made {
  readonly id: string;
  readonly secret: string;
}

async function makeKey(key: string, fields: object = {}): Promise<Made> {
  return (await api().ask('/v1/keys', { key, body: { scope: 'management', ...fields } })).body;
}

const rotate = ({ id }: Pick<Made, 'id'>, key: string, body: object = {}): Promise<Answer> =>
  api().ask(`/v1/keys/${id}/rotate`, { key, body });

const works = async (secret: string): Promise<boolean> => (await api().ask('/v1/keys', { key: secret })).status === 200;

const refusal = ({ status, body }: Answer): unknown[] => [status, body.error?.code];

describe('a rejected key rotation', () => {
  it.each([-1, 2_592_001, 1.5, '60', null])('returns 400 for a grace of %j', async (grace) => {
    const { key } = await api().organization();
    const answer = await rotate(await makeKey(key), key, { grace_seconds: grace });
    expect([answer.status, answer.body.error.param]).toEqual([400, 'grace_seconds']);
  });

  it('returns the same 404 for a key of another organization and an unknown key', async () => {
    const [mine, other] = [await api().organization(), await api().organization()];
    for (const id of [(await makeKey(other.key)).id, formatId('key', uuidv7())]) {
      expect(refusal(await rotate({ id }, mine.key))).toEqual([404, 'not_found']);
    }
  });

  it('returns 403 to an inference key, also for itself', async () => {
    const { key } = await api().organization();
    const made = await makeKey(key, { scope: 'inference' });
    expect(refusal(await rotate(made, made.secret))).toEqual([403, 'insufficient_scope']);
    expect(refusal(await rotate(made, key))[0]).toBe(200);
  });

  it('returns 409 for a revoked or expired key', async () => {
    const { key } = await api().organization();
    const [revoked, expired] = [await makeKey(key), await makeKey(key, { expiry: '7d' })];
    await api().ask(`/v1/keys/${revoked.id}`, { method: 'DELETE', key });
    api().turnClock(7 * 24 * hourMs);
    for (const [made, why] of [[revoked, 'revoked'] as const, [expired, 'expired'] as const]) {
      const answer = await rotate(made, key);
      expect(refusal(answer)).toEqual([409, 'conflict']);
      expect(answer.body.error.message).toContain(`this key is ${why}`);
    }
  });

  it('returns 409 for a key that the gateway holds itself', async () => {
    const { key } = await api().organization();
    const caller = await api().keys.verify(key);
    if (caller === null || caller.userId === null) throw new Error('no key of a user');
    const { organizationId, projectId, userId } = caller;
    const input = { organizationId, projectId, userId, name: 'held', scope: 'inference', expires: null, models: null };
    const toggles = defaultKeyToggles;
    const held = await api().keys.hold({ ...input, scope: 'inference', limits: {}, toggles }, systemAuthor);
    expect(refusal(await rotate({ id: formatId('key', held.id) }, key))).toEqual([409, 'conflict']);
  });

  it('returns 409 while eight former secrets are valid', async () => {
    const { key } = await api().organization();
    const made = await makeKey(key);
    for (let count = 0; count < 8; count += 1) expect((await rotate(made, key)).status).toBe(200);
    expect(refusal(await rotate(made, key))).toEqual([409, 'conflict']);
    expect(await works(made.secret)).toBe(true);
    api().turnClock(25 * hourMs);
    expect((await rotate(made, key)).status).toBe(200);
  });
});

describe('a rotated key', () => {
  it('accepts both secrets until the grace ends, then only the new one, on two gateways', async () => {
    const { key } = await api().organization();
    const made = await makeKey(key, { name: 'service', requests_per_minute: 60 });
    const { keys } = api().secondRooms();
    const there = async (secret: string): Promise<boolean> => (await keys.verify(secret)) !== null;
    expect([await works(made.secret), await there(made.secret)]).toEqual([true, true]);
    const { status, body } = await rotate(made, key, { grace_seconds: 3600 });
    expect(status).toBe(200);
    expect(body).toMatchObject({ id: made.id, name: 'service', status: 'active', requests_per_minute: 60 });
    expect(body.former_secrets_end_at - body.rotated_at).toBe(3600);
    expect(body.secret).not.toBe(made.secret);
    expect(body.secret.endsWith(body.last4)).toBe(true);
    await keys.lookForChanges();
    for (const secret of [made.secret, body.secret]) {
      expect([await works(secret), await there(secret)]).toEqual([true, true]);
    }
    api().turnClock(hourMs);
    expect([await works(made.secret), await there(made.secret)]).toEqual([false, false]);
    expect([await works(body.secret), await there(body.secret)]).toEqual([true, true]);
    const shown = await api().ask(`/v1/keys/${made.id}`, { key });
    expect(shown.body).toMatchObject({ rotated_at: body.rotated_at, former_secrets_end_at: null });
    expect(shown.body).not.toHaveProperty('secret');
  });

  it('can rotate itself, and ends the old secret at once without grace', async () => {
    const { key } = await api().organization();
    const made = await makeKey(key);
    const { body } = await rotate(made, made.secret, { grace_seconds: 0 });
    expect([await works(made.secret), await works(body.secret)]).toEqual([false, true]);
    expect(body.former_secrets_end_at).toBeNull();
    const { keys } = api().secondRooms();
    expect([await keys.verify(made.secret), (await keys.verify(body.secret))?.id]).toEqual([
      null,
      parseId('key', made.id),
    ]);
  });

  it('keeps the grace of each earlier secret when it is rotated again', async () => {
    const { key } = await api().organization();
    const made = await makeKey(key);
    const first = await rotate(made, key, { grace_seconds: 7200 });
    const second = await rotate(made, key, { grace_seconds: 3600 });
    const secrets = [made.secret, first.body.secret, second.body.secret];
    const all = async (): Promise<boolean[]> => Promise.all(secrets.map(works));
    expect(await all()).toEqual([true, true, true]);
    expect(second.body.former_secrets_end_at).toBe(first.body.former_secrets_end_at);
    api().turnClock(hourMs);
    expect(await all()).toEqual([true, false, true]);
    api().turnClock(hourMs);
    expect(await all()).toEqual([false, false, true]);
  });

  it('counts as one key, and has one current secret after twenty concurrent rotations', async () => {
    const { key } = await api().organization();
    const made = await makeKey(key);
    const before = (await api().ask('/v1/keys?status=active', { key })).body.data.length;
    const answers = await Promise.all(Array.from({ length: 20 }, () => rotate(made, key, { grace_seconds: 0 })));
    expect(answers.map(({ status }) => status)).toEqual(Array.from({ length: 20 }, () => 200));
    const working = await Promise.all(answers.map(({ body }) => works(body.secret)));
    expect(working.filter(Boolean)).toHaveLength(1);
    expect((await api().ask('/v1/keys?status=active', { key })).body.data).toHaveLength(before);
  });

  it('ends with all its secrets when it is revoked during the grace', async () => {
    const { key } = await api().organization();
    const made = await makeKey(key);
    const { body } = await rotate(made, key);
    const { keys } = api().secondRooms();
    expect(await keys.verify(made.secret)).not.toBeNull();
    await api().ask(`/v1/keys/${made.id}`, { method: 'DELETE', key });
    await keys.lookForChanges();
    for (const secret of [made.secret, body.secret]) {
      expect([await works(secret), await keys.verify(secret)]).toEqual([false, null]);
    }
  });

  it('ends running requests of a reported former secret on a gateway that was not notified', async () => {
    const { key } = await api().organization();
    const made = await makeKey(key);
    await rotate(made, key);
    const { keys } = api().secondRooms();
    const caller = await keys.verify(made.secret);
    const ended: string[] = [];
    keys.onSecretEnded(({ keyId, secretHash }) => {
      if (caller?.secretHash?.equals(secretHash) === true) ended.push(keyId);
    });
    await keys.lookForChanges();
    expect(ended).toEqual([]);
    await api().ask('/v1/keys/report', { key: null, body: { secret: made.secret } });
    await keys.lookForChanges();
    expect(ended).toEqual([parseId('key', made.id)]);
    expect(await keys.verify(made.secret)).toBeNull();
  });

  it('survives a report of a former secret, and ends by a report of the current one', async () => {
    const { key } = await api().organization();
    const made = await makeKey(key);
    const { body } = await rotate(made, key);
    const report = async (secret: string): Promise<unknown> =>
      (await api().ask('/v1/keys/report', { key: null, body: { secret } })).body.revoked;
    expect([await report(made.secret), await report(made.secret)]).toEqual([true, false]);
    expect([await works(made.secret), await works(body.secret)]).toEqual([false, true]);
    expect((await api().ask(`/v1/keys/${made.id}`, { key })).body.former_secrets_end_at).toBeNull();
    expect(await report(body.secret)).toBe(true);
    expect(await works(body.secret)).toBe(false);
  });

  it('has an audit entry with the last characters of both secrets, and neither secret', async () => {
    const { key } = await api().organization();
    const made = await makeKey(key);
    const { body } = await rotate(made, key);
    const { body: log } = await api().ask('/v1/audit?action=api_key.rotated', { key });
    expect(log.data).toHaveLength(1);
    expect(log.data[0]).toMatchObject({ before: { last4: made.secret.slice(-4) }, after: { last4: body.last4 } });
    for (const secret of [made.secret, body.secret]) expect(JSON.stringify(log)).not.toContain(secret);
  });
});

describe('a repeated request for a key', () => {
  it.each(['', 'x'.repeat(256), 'Schlüssel'])('returns 400 for the Idempotency-Key %j', async (value) => {
    const headers = { 'Idempotency-Key': Buffer.from(value).toString('latin1') };
    const answer = await api().ask('/v1/keys', { body: { name: 'bad' }, headers });
    expect([...refusal(answer), answer.body.error.param]).toEqual([400, 'invalid_request_error', 'Idempotency-Key']);
  });

  it('creates one key for each Idempotency-Key of an organization, also at the key limit', async () => {
    const [mine, other] = [await api().organization(), await api().organization()];
    for (let made = 1; made < 4; made += 1) await api().ask('/v1/keys', { key: mine.key, body: { name: 'before' } });
    const once = (key: string) =>
      api().ask('/v1/keys', { key, body: { name: 'once' }, headers: { 'Idempotency-Key': 'of my choice' } });
    const answers = await Promise.all([once(mine.key), once(mine.key), once(mine.key)]);
    const made = answers.filter(({ status }) => status === 201);
    expect(made).toHaveLength(1);
    for (const again of [...answers.filter(({ status }) => status !== 201), await once(mine.key)]) {
      expect([...refusal(again), again.body.error.param]).toEqual([409, 'conflict', 'Idempotency-Key']);
      expect(again.body.error.message).toContain(made[0]?.body.id);
    }
    expect((await once(other.key)).status).toBe(201);
  });
});
