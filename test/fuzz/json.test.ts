import { expect, it } from 'vitest';
import { createTestDatabase } from '#test/database.ts';
import { jsonTarget } from './json.ts';
import { fuzz } from './run.ts';

it('forwards any JSON to engines unchanged, bills what they count, and returns no internal error', async () => {
  const database = await createTestDatabase();
  const { failure } = await fuzz(jsonTarget, { seed: 1, path: null, length: { rounds: 3 }, databaseUrl: database.url });
  await database.drop();
  expect(failure).toBeNull();
});
