import { expect, it } from 'vitest';
import { useApi } from '#test/api/test-api.ts';

const api = useApi();

const line = { custom_id: 'a', method: 'POST', url: '/v1/chat/completions', body: { model: 'model-a', messages: [] } };

it('creates more batches at once than the pool has connections', async () => {
  const { key } = await api().organization();
  const keys = [key];
  for (const name of ['second', 'third']) {
    const made = await api().ask('/v1/keys', { key, body: { name, scope: 'management' } });
    keys.push(made.body.secret);
  }
  const form = new FormData();
  form.append('purpose', 'batch');
  form.append('file', new File([`${JSON.stringify(line)}\n`], 'in.jsonl'));
  const headers = { authorization: `Bearer ${key}` };
  const uploaded = await fetch(new URL('/v1/files', api().url), { method: 'POST', headers, body: form });
  const { id } = (await uploaded.json()) as { id: string };
  const body = { input_file_id: id, endpoint: '/v1/chat/completions', completion_window: '24h' };
  const asked = Array.from({ length: 12 }, (_, n) => api().ask('/v1/batches', { key: keys[n % 3] ?? '', body }));
  expect((await Promise.all(asked)).map(({ status }) => status)).toEqual(Array.from({ length: 12 }, () => 200));
});
