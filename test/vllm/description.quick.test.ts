import { expect, it } from 'vitest';
import { type Description, describeVllm, differencesBetween } from './description.ts';

const empty: Description = { version: '0.32.0', fields: {}, routes: [], metrics: [], environment: [], flags: [] };

it('names new and removed parts, fields by their place', () => {
  const older = { ...empty, fields: { '/v1/a': ['one', 'two'] }, routes: ['GET /x'], flags: ['--same'] };
  const newer = { ...empty, fields: { '/v1/a': ['two', 'three'], 'tools[]': ['type'] }, flags: ['--same', '--new'] };
  expect(differencesBetween(older, newer)).toEqual({
    fields: { added: ['/v1/a three', 'tools[] type'], gone: ['/v1/a one'] },
    routes: { added: [], gone: ['GET /x'] },
    metrics: { added: [], gone: [] },
    environment: { added: [], gone: [] },
    flags: { added: ['--new'], gone: [] },
  });
});

it('names a folder that holds no installed vLLM', async () => {
  await expect(describeVllm('/nonexistent')).rejects.toThrow('/nonexistent does not exist');
  await expect(describeVllm(import.meta.dirname)).rejects.toThrow('has no venv/bin/python');
});
