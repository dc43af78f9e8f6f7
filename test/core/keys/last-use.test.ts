import { expect, it } from 'vitest';
import { parseId } from '#base/id.ts';
import { useServiceAccounts } from '#test/api/service-account-support.ts';
import { eventually } from '#test/inference/inference-gateway.ts';

const { api, open, make, ask, works } = useServiceAccounts();

it('updates last_used_at in the lock order of key revocations, without a deadlock', async () => {
  const place = await open();
  const { id, api_key: first } = await make(place);
  const { body: second } = await ask(place, `/${id}/api_keys`, { body: {} });
  const ids = [first, second].map((key) => parseId('key', key.id) ?? '');
  const [one = '', two = ''] = ids;
  const { sql } = api().db;
  // Its row comes to lie behind the other one.
  await sql`update api_keys set last_used_at = now() where id = ${one}`;
  const { keys } = api().secondRooms();
  for (const key of ids) keys.touch(key);
  // As the deletion of the account locks them.
  const flushed = await sql.begin(async (tx) => {
    await tx`select id from api_keys where id = ${one} for update`;
    const flushing = keys.flush().then(() => 'flushed', String);
    await eventually(async () => (await sql`select 1 from pg_locks where not granted`).length > 0);
    await tx`select id from api_keys where id = ${two} for update`;
    return { flushing };
  });
  expect(await flushed.flushing).toBe('flushed');
  expect((await ask(place, `/${id}`, { method: 'DELETE' })).status).toBe(200);
  expect(await works(first.value)).toBe(false);
});
