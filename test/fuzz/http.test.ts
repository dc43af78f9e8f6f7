import { expect, it } from 'vitest';
import { createTestDatabase } from '#test/database.ts';
import { httpTarget } from './http.ts';
import { fuzz } from './run.ts';

it('answers any bytes with HTTP without internal details, and serves other requests meanwhile', async () => {
  const database = await createTestDatabase();
  const { failure } = await fuzz(httpTarget, { seed: 1, path: null, length: { rounds: 1 }, databaseUrl: database.url });
  await database.drop();
  expect(failure).toBeNull();
});
