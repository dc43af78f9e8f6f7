import { expect, it } from 'vitest';
import { createTestDatabase } from '#test/database.ts';
import { jsonTarget } from './json.ts';
import { fuzz } from './run.ts';

it('hands engines what was sent, bills what they count, and has no fault of its own, whatever JSON comes', async () => {
  const database = await createTestDatabase();
  const { failure } = await fuzz(jsonTarget, { seed: 1, path: null, length: { rounds: 3 }, databaseUrl: database.url });
  await database.drop();
  expect(failure).toBeNull();
});
