import { expect, it } from 'vitest';
import { connectDb } from '#base/database/connect-database.ts';
import { readFleetIdentity } from '#core/fleet/identity.ts';
import { createTestDatabase } from '#test/database.ts';

it('all gateways of one database share a fleet secret, and two databases have different ones', async () => {
  const databases = [await createTestDatabase(), await createTestDatabase()];
  const dbs = databases.map(({ url }) => connectDb(url));
  const read = await Promise.all(dbs.flatMap((db) => [readFleetIdentity(db), readFleetIdentity(db)]));
  const again = await Promise.all(dbs.map((db) => readFleetIdentity(db)));
  expect(read[0]).toEqual(read[1]);
  expect(again).toEqual([read[0], read[2]]);
  expect(read[2]?.fleetSecret).not.toBe(read[0]?.fleetSecret);
  expect(read[2]?.fleetId).not.toBe(read[0]?.fleetId);
  for (const { fleetId, fleetSecret } of read) {
    expect(fleetSecret).toMatch(/^[0-9a-f]{64}$/);
    expect(fleetId).toMatch(/^[0-9a-f]{16}$/);
    expect(fleetSecret).not.toContain(fleetId);
  }
  for (const db of dbs) await db.close();
  for (const database of databases) await database.drop();
});
