import { describe, expect, it } from 'vitest';
import {
  type Body,
  errorOf,
  framesOf,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

const bench = useInference(() => ({
  engines: { chat: standinFile('chat'), embed: standinFile('embed', { taskType: 'embedding' }) },
}));

const param = 'x-headgate-max-cost';
const capped = (usd: string, more: object = {}) => ({ headers: { [param]: usd }, ...more });

/** Bytes of the prompt's estimate: input costs 0.1, output 0.4 micro-dollars a token. */
const inputPico = 100_000n;
const outputPico = 400_000n;

const usdOf = (pico: bigint): string => {
  const text = pico.toString().padStart(13, '0');
  return `${text.slice(0, -12)}.${text.slice(-12)}`;
};

/** The cap that pays for a body's prompt and some output tokens. */
function capFor(body: object, outputTokens: bigint): bigint {
  return BigInt(Math.ceil(Buffer.byteLength(JSON.stringify(body)) / 4)) * inputPico + outputTokens * outputPico;
}

const body = {
  model: 'chat',
  messages: [{ role: 'user', content: 'Hello, how are you?' }],
  standin: { output_tokens: 500 },
};

async function spent(key: string): Promise<Body> {
  return bench.wallet(key);
}

describe('X-Headgate-Max-Cost', () => {
  it.each([['0'], ['-1'], ['1e-3'], ['0.0000000000001'], ['abc'], [''], ['1,5'], ['.5'], ['0.01, 0.02'], ['$1']])(
    'returns 400 for the value %s',
    async (text) => {
      const answer = await bench.post('/v1/chat/completions', body, capped(text));
      expect(await errorOf(answer)).toMatchObject({ status: 400, code: 'invalid_value', param });
    },
  );

  it('returns 400 with both numbers when the prompt already costs more', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    for (const stream of [true, false]) {
      const asked = { ...body, stream };
      const cap = capFor(asked, 0n) - 1n;
      const error = await errorOf(await bench.post('/v1/chat/completions', asked, capped(usdOf(cap), { key })));
      expect(error).toMatchObject({ status: 400, code: 'invalid_value', param });
      expect(error.message).toContain(usdOf(cap).replace(/0+$/, ''));
      expect(error.message).toContain(usdOf(capFor(asked, 0n)).replace(/0+$/, ''));
    }
    expect(await spent(key)).toMatchObject({ balance: '1', held: '0' });
  });

  it('returns 400 when it pays for no output token', async () => {
    const cap = capFor(body, 1n);
    const refused = await bench.post('/v1/chat/completions', body, capped(usdOf(cap - 1n)));
    expect(await errorOf(refused)).toMatchObject({ status: 400, param });
    const taken = await bench.post('/v1/chat/completions', body, capped(usdOf(cap)));
    expect(taken.headers.get('x-headgate-max-tokens')).toBe('1');
    expect(((await taken.json()) as Body).usage.completion_tokens).toBe(1);
  });

  it('cuts the output of a JSON answer to what it pays for, and returns that limit', async () => {
    const answer = await bench.post('/v1/chat/completions', body, capped(usdOf(capFor(body, 20n))));
    expect(answer.headers.get('x-headgate-max-tokens')).toBe('20');
    const { usage, choices }: Body = await answer.json();
    expect(usage.completion_tokens).toBe(20);
    expect(choices[0].finish_reason).toBe('length');
  });

  it("cuts a stream below the request's own limit", async () => {
    const asked = { ...body, stream: true, max_tokens: 400, stream_options: { include_usage: true } };
    const answer = await bench.post('/v1/chat/completions', asked, capped(usdOf(capFor(asked, 15n))));
    expect(answer.headers.get('x-headgate-max-tokens')).toBe('15');
    const frames = framesOf(await answer.text());
    expect(frames.at(-2).usage.completion_tokens).toBe(15);
    expect((await bench.recordOf(answer)).outcome).toBe('completed');
  });

  it('is shared by the choices', async () => {
    const asked = { ...body, n: 3 };
    const answer = await bench.post('/v1/chat/completions', asked, capped(usdOf(capFor(asked, 30n))));
    expect(answer.headers.get('x-headgate-max-tokens')).toBe('10');
    expect(((await answer.json()) as Body).usage.completion_tokens).toBe(30);
  });

  it('changes nothing when it pays for everything', async () => {
    const asked = { ...body, max_tokens: 8 };
    const answer = await bench.post('/v1/chat/completions', asked, capped(usdOf(capFor(asked, 8n))));
    expect(answer.headers.get('x-headgate-max-tokens')).toBeNull();
    expect(((await answer.json()) as Body).usage.completion_tokens).toBe(8);
  });

  it('limits the output only where the wallet pays for more than the cap', async () => {
    const { key } = await openOrganization(bench.gateway, '0.001');
    const asked = { ...body, max_tokens: 5000 };
    const plain = await bench.post('/v1/chat/completions', asked, { key });
    const byWallet = Number(plain.headers.get('x-headgate-max-tokens'));
    expect(byWallet).toBeGreaterThan(20);
    await plain.text();
    const other = await openOrganization(bench.gateway, '0.001');
    const loose = await bench.post('/v1/chat/completions', asked, capped(usdOf(capFor(asked, 4000n)), other));
    expect(Number(loose.headers.get('x-headgate-max-tokens'))).toBe(byWallet);
    await loose.text();
    const tight = await bench.post('/v1/chat/completions', asked, capped(usdOf(capFor(asked, 20n)), other));
    expect(tight.headers.get('x-headgate-max-tokens')).toBe('20');
    await tight.text();
  });

  it('covers the whole cost of an embedding', async () => {
    const asked = { model: 'embed', input: 'some words to embed' };
    const taken = await bench.post('/v1/embeddings', asked, capped(usdOf(capFor(asked, 0n))));
    expect(taken.status).toBe(200);
    await taken.text();
    const refused = await bench.post('/v1/embeddings', asked, capped(usdOf(capFor(asked, 0n) - 1n)));
    expect(await errorOf(refused)).toMatchObject({ status: 400, param });
  });
});
