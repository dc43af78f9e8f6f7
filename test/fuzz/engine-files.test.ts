import { expect, it } from 'vitest';
import { engineFilesTarget } from './engine-files.ts';
import { fuzz } from './run.ts';

it('parses any engine file into a valid definition, or reports the error with its place', async () => {
  const { failure } = await fuzz(engineFilesTarget, { seed: 1, path: null, length: { rounds: 3 }, databaseUrl: null });
  expect(failure).toBeNull();
});
