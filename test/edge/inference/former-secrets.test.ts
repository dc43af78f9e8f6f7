import { describe, expect, it } from 'vitest';
import { type Body, errorOf, framesOf, standinFile, useInference } from '#test/inference/inference-gateway.ts';

const bench = useInference(() => ({ engines: { chat: standinFile('chat') } }));

interface Secret {
  readonly id: string;
  readonly secret: string;
}

async function post(path: string, body: object = {}): Promise<Body> {
  const answer = await bench.gateway.request(path, { body });
  expect(answer.status).toBeLessThan(300);
  return answer.json();
}

const makeKey = (): Promise<Secret> => post('/v1/keys', { name: 'service', scope: 'inference' });

const rotate = ({ id }: Secret, grace_seconds: number): Promise<Secret> =>
  post(`/v1/keys/${id}/rotate`, { grace_seconds });

const report = ({ secret }: Secret): Promise<Body> => post('/v1/keys/report', { secret });

interface Stream {
  /** All of its frames, once it has ended. */
  end(): Promise<readonly unknown[]>;
}

/** A stream that has begun, and goes on for long. */
async function begin({ secret }: Secret, tokens: number): Promise<Stream> {
  const standin = { output_tokens: tokens, tpot_ms: 5 };
  const answer = await bench.chat({ stream: true, max_tokens: tokens, standin }, { key: secret });
  const reader = answer.body?.getReader();
  if (reader === undefined) throw new Error('the stream has no body');
  const first = await reader.read();
  return {
    async end() {
      let text = Buffer.from(first.value ?? []).toString();
      for (let read = await reader.read(); !read.done; read = await reader.read()) {
        text += Buffer.from(read.value).toString();
      }
      return framesOf(text);
    },
  };
}

const cut = { error: expect.objectContaining({ code: 'unauthorized', type: 'auth_error' }) };

describe('a stream that began with a former secret', () => {
  it("ends when that secret is reported, while streams with the key's new secret continue", async () => {
    const former = await makeKey();
    const today = await rotate(former, 3600);
    const [leaked, other] = [await begin(former, 8000), await begin(today, 300)];
    expect(await report(former)).toMatchObject({ revoked: true });
    const frames = await leaked.end();
    expect(frames.slice(-2)).toEqual([cut, '[DONE]']);
    expect(frames.length).toBeLessThan(8000);
    expect((await other.end()).filter((frame) => typeof frame === 'object').length).toBeGreaterThan(300);
    expect(await errorOf(await bench.chat({}, { key: former.secret }))).toMatchObject({ status: 401 });
    expect((await bench.chat({}, { key: today.secret })).status).toBe(200);
  });

  it('continues after the grace period, and ends when that secret is reported later', async () => {
    const former = await makeKey();
    const running = await begin(former, 8000);
    const today = await rotate(former, 1);
    await expect.poll(async () => (await bench.chat({}, { key: former.secret })).status).toBe(401);
    const ended = running.end();
    let isOver = false;
    void ended.then(() => (isOver = true));
    await begin(today, 1);
    expect(isOver).toBe(false);
    expect(await report(former)).toEqual({ object: 'key_report', revoked: false });
    expect((await ended).slice(-2)).toEqual([cut, '[DONE]']);
  });

  it('ends at a rotation without a grace period', async () => {
    const former = await makeKey();
    const running = await begin(former, 8000);
    const today = await rotate(former, 0);
    const other = await begin(today, 20);
    expect((await running.end()).slice(-2)).toEqual([cut, '[DONE]']);
    expect((await other.end()).at(-1)).toBe('[DONE]');
  });
});
