import { describe, expect, it } from 'vitest';
import {
  type Body,
  eventually,
  framesOf,
  readMetric,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';
import { fresh, makeKey, openReuse } from '#test/cache/caching-key.ts';

const bench = useInference(() => ({ engines: { chat: standinFile('chat') } }));

const cacheOf = (answer: Response): string | null => answer.headers.get('x-headgate-cache');
const running = (): Promise<number> => readMetric(bench.socketOf('chat'), 'vllm:num_requests_running');

describe('identical requests at once', () => {
  it('go to the engine once: forty of two keys, streams and plain answers mixed', async () => {
    const { chat, managementKey, asked } = await openReuse(bench, { cache_responses: true });
    const other = await makeKey(bench, managementKey, { cache_responses: true });
    await (await chat(fresh())).text();
    const before = await asked();
    const body = { ...fresh(), standin: { ttft_ms: 300, output_tokens: 8 } };
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, index) => {
        const stream = index % 2 === 1;
        return chat({ ...body, stream }, index % 3 === 0 ? { key: other.secret } : {});
      }),
    );
    const texts = await Promise.all(answers.map((answer) => answer.text()));
    expect((await asked()) - before).toBe(1);
    expect(answers.filter((answer) => cacheOf(answer) === 'miss')).toHaveLength(1);
    expect(answers.filter((answer) => cacheOf(answer) === 'hit')).toHaveLength(39);
    const contents = texts.map((text, index) => {
      if (index % 2 === 0) return JSON.parse(text).choices[0].message.content as string;
      return framesOf(text)
        .map((frame: Body) => frame.choices?.[0]?.delta.content ?? '')
        .join('');
    });
    expect(new Set(contents).size).toBe(1);
  });

  it('run separately after the first one fails, each with its own failure', async () => {
    const { chat } = await openReuse(bench, { cache_responses: true });
    const body = { ...fresh(), standin: { ttft_ms: 100, error_after: 1, output_tokens: 4 } };
    const answers = await Promise.all(Array.from({ length: 5 }, () => chat(body)));
    expect(answers.map(({ status }) => status)).toEqual([502, 502, 502, 502, 502]);
    for (const answer of answers) {
      expect(cacheOf(answer)).toBe('miss');
      await answer.text();
    }
  });

  it('continue when the first client leaves: the next one runs, the others wait for it', async () => {
    const { chat, managementKey } = await openReuse(bench, { cache_responses: true });
    await (await chat(fresh())).text();
    const body = { ...fresh(), max_tokens: 12, standin: { ttft_ms: 400, output_tokens: 12 } };
    const leaving = new AbortController();
    const first = chat(body, { signal: leaving.signal }).then(
      () => 'answered',
      () => 'left',
    );
    await eventually(async () => (await running()) === 1);
    const others = Array.from({ length: 4 }, () => chat(body));
    await new Promise((resolve) => setTimeout(resolve, 50));
    leaving.abort();
    expect(await first).toBe('left');
    const answers = await Promise.all(others);
    for (const answer of answers) {
      expect(answer.status).toBe(200);
      await answer.text();
    }
    expect(answers.filter((answer) => cacheOf(answer) === 'miss')).toHaveLength(1);
    const list: Body = await (await bench.gateway.request('/v1/usage/requests', { key: managementKey })).json();
    const records = list.data.map((record: Body) => [record.outcome, record.cache_hit]);
    expect(records.filter(([outcome]: Body) => outcome === 'aborted')).toEqual([['aborted', false]]);
    expect(records.filter(([, hit]: Body) => hit === true)).toHaveLength(3);
    expect(records).toHaveLength(6);
  });

  it('have no record when they leave while waiting, and do not disturb the others', async () => {
    const { chat, managementKey, asked } = await openReuse(bench, { cache_responses: true });
    await (await chat(fresh())).text();
    const before = await asked();
    const body = { ...fresh(), standin: { ttft_ms: 300, output_tokens: 4 } };
    const first = chat(body);
    await eventually(async () => (await running()) === 1);
    const leaving = new AbortController();
    const left = chat(body, { signal: leaving.signal }).catch(() => 'left');
    await new Promise((resolve) => setTimeout(resolve, 50));
    leaving.abort();
    expect(await left).toBe('left');
    expect((await first).status).toBe(200);
    expect(cacheOf(await chat(body))).toBe('hit');
    expect((await asked()) - before).toBe(1);
    const list: Body = await (await bench.gateway.request('/v1/usage/requests', { key: managementKey })).json();
    expect(list.data).toHaveLength(3);
  });

  it('return 401 when their key is revoked while they wait', async () => {
    const { chat, managementKey } = await openReuse(bench, { cache_responses: true });
    const other = await makeKey(bench, managementKey, { cache_responses: true });
    const body = { ...fresh(), standin: { ttft_ms: 3000, output_tokens: 4 } };
    const first = chat(body);
    await eventually(async () => (await running()) === 1);
    const waiting = chat(body, { key: other.secret });
    await new Promise((resolve) => setTimeout(resolve, 50));
    await bench.gateway.request(`/v1/keys/${other.id}`, { key: managementKey, method: 'DELETE' });
    expect((await waiting).status).toBe(401);
    expect((await first).status).toBe(200);
  });
});
