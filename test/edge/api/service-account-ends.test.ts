import { describe, expect, it } from 'vitest';
import { refusal, useServiceAccounts } from '#test/api/service-account-support.ts';

const { api, open, makeProject, sdkOf, ask, make, works } = useServiceAccounts();
const dayMs = 86_400_000;

describe('deleting a service account', () => {
  it('happens when its project is archived, keeps other keys, and is not undone by unarchiving', async () => {
    const place = await open();
    const [one, two] = [await make(place), await make(place)];
    const elsewhere = await make({ ...place, projectId: await makeProject(place.key) });
    const body = { project_id: place.projectId };
    const { body: plain } = await api().ask('/v1/keys', { key: place.key, body });
    const { keys } = api().secondRooms();
    const secrets = [one, two].map(({ api_key: made }) => made.value as string);
    for (const secret of secrets) expect(await keys.verify(secret)).not.toBeNull();
    await sdkOf(place).archive(place.projectId);
    await keys.lookForChanges();
    for (const secret of secrets) expect([await works(secret), await keys.verify(secret)]).toEqual([false, null]);
    expect((await ask(place)).body.data).toEqual([]);
    await api().ask(`/v1/projects/${place.projectId}`, {
      method: 'PATCH',
      key: place.key,
      body: { archived: false },
    });
    expect((await ask(place)).body.data).toEqual([]);
    expect([await works(secrets[0] ?? ''), await works(plain.secret), await works(elsewhere.api_key.value)]).toEqual([
      false,
      true,
      true,
    ]);
    await make(place, { name: one.name });
  });

  it('leaves no working key for accounts created while their project is archived', async () => {
    const place = await open();
    const before = await make(place);
    const made = Array.from({ length: 8 }, (_, index) => ask(place, '', { body: { name: `number ${index}` } }));
    const archived = api().ask(`/v1/projects/${place.projectId}/archive`, { method: 'POST', key: place.key });
    const answers = [...(await Promise.all(made)), { status: 200, body: before }];
    expect((await archived).status).toBe(200);
    expect((await ask(place)).body.data).toEqual([]);
    for (const { status } of answers) expect([200, 409]).toContain(status);
    const secrets = answers.flatMap(({ status, body }) => (status === 200 ? [body.api_key.value as string] : []));
    for (const secret of secrets) expect(await works(secret)).toBe(false);
  });

  it('leaves no working key when keys are created and rotated during two deletions', async () => {
    const place = await open();
    const { id, api_key: first } = await make(place);
    const making = [1, 2, 3].map(() => ask(place, `/${id}/api_keys`, { body: {} }));
    const named = api().ask('/v1/keys', { key: place.key, body: { service_account_id: id } });
    const rotating = [1, 2, 3].map(() =>
      api().ask(`/v1/keys/${first.id}/rotate`, { key: place.key, body: { grace_seconds: 60 } }),
    );
    const deleting = [1, 2].map(() => ask(place, `/${id}`, { method: 'DELETE' }));
    const made = await Promise.all([...making, named, ...rotating]);
    const deleted = (await Promise.all(deleting)).map(({ status }) => status);
    expect(new Set(deleted)).toEqual(new Set([200, 404]));
    const secrets = made.flatMap(({ status, body }) => (status < 300 ? [(body.value ?? body.secret) as string] : []));
    for (const { status } of made) expect([200, 201, 400, 404, 409]).toContain(status);
    for (const secret of [first.value, ...secrets]) expect(await works(secret)).toBe(false);
    const { data } = (await api().ask(`/v1/keys?service_account_id=${id}&status=active`, { key: place.key })).body;
    expect(data).toEqual([]);
    const late = await api().ask(`/v1/keys/${first.id}/rotate`, { key: place.key, body: {} });
    expect(refusal(late)).toEqual([409, 'conflict', null]);
  });

  it('ends no key of other owners; an expired key ends without its account', async () => {
    const place = await open();
    const { id } = await make(place, { expires_in_seconds: 86_400 });
    const { body: second } = await ask(place, `/${id}/api_keys`, { body: { expires_in_seconds: null } });
    api().turnClock(dayMs);
    const { data } = await sdkOf(place).apiKeys.list(place.projectId);
    expect(data.map((key) => key.id)).toEqual([second.id]);
    await ask(place, `/${id}`, { method: 'DELETE' });
    expect([await works(second.value), await works(place.key)]).toEqual([false, true]);
  });
});
