import { expect, it } from 'vitest';
import { engineFilesTarget } from './engine-files.ts';
import { fuzz } from './run.ts';

it('reads any file as a definition that keeps to the rules, or says what is wrong and where', async () => {
  const { failure } = await fuzz(engineFilesTarget, { seed: 1, path: null, length: { rounds: 3 }, databaseUrl: null });
  expect(failure).toBeNull();
});
