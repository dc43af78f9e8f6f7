import { afterAll, describe, expect, it } from 'vitest';
import { type ByteServer, startByteServer } from '#test/proxy/byte-server.ts';
import {
  type Body,
  eventually,
  externalFile,
  framesOf,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

/** Tokens that the chat template of the stand-in engine puts before each conversation. */
const preamble = 1300;
const flags = ['--preamble-tokens', String(preamble), '--enable-prompt-tokens-details'];
const forced = [...flags, '--enable-force-include-usage'];

/** Answers an embedding of one picture with as many tokens as a vision model makes of it. */
const pictureTokens = 3000;
let pictures: ByteServer | null = null;

const bench = useInference(async () => {
  const answer = { object: 'list', data: [{ index: 0, embedding: [1] }], usage: { prompt_tokens: pictureTokens } };
  const text = JSON.stringify({ ...answer, model: 'pictures' });
  const head = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n`;
  pictures = await startByteServer({ transport: 'tcp', answer: ({ socket }) => void socket.write(head + text) });
  return {
    engines: {
      chat: standinFile('chat', { flags: forced }),
      plain: standinFile('plain', { flags }),
      first: standinFile('first', { flags: forced }),
      capped: standinFile('capped', { flags: forced }),
      pictures: externalFile('pictures', `http://127.0.0.1:${pictures.endpoint.port}`, { taskType: 'embedding' }),
    },
  };
});
afterAll(() => pictures?.close());

/** Cost of a record's tokens in USD, at the prices of the engine file. */
function usd({ input_tokens: input, input_cached_tokens: cached, output_tokens: output }: Body): number {
  return ((input - cached) * 0.1 + cached * 0.05 + output * 0.4) / 1e6;
}

const messages = (words: number): object[] => [{ role: 'user', content: 'word '.repeat(words) }];

/** Each route that generates, asked with a prompt of so many words. */
const routes: Readonly<Record<string, (model: string, words: number) => object>> = {
  '/v1/chat/completions': (model, words) => ({ model, messages: messages(words), max_tokens: 30 }),
  '/v1/messages': (model, words) => ({ model, messages: messages(words), max_tokens: 30 }),
  '/v1/responses': (model, words) => ({ model, input: 'word '.repeat(words), max_output_tokens: 30 }),
};

/** Every `cost` that an answer tells. */
const costsIn = (text: string): number[] => [...text.matchAll(/"cost":([\d.e-]+)/g)].map(([, cost]) => Number(cost));

describe('a model whose chat template has 1,300 tokens', () => {
  it('is charged in full over ordinary traffic, without write-offs', async () => {
    const { key } = await openOrganization(bench.gateway, '1000');
    const asked = Object.entries(routes).flatMap(([path, bodyOf]) =>
      ['chat', 'plain'].flatMap((model) =>
        [1, 40, 400].flatMap((words) =>
          [false, true].map((stream) => ({
            path,
            body: { ...bodyOf(model, words), stream, usage: { include: true } },
          })),
        ),
      ),
    );
    const answers = await Promise.all(
      asked.map(async ({ path, body }) => {
        const answer = await bench.post(path, body, { key });
        const text = await answer.text();
        expect(answer.status, text).toBe(200);
        expect(text).not.toContain('"error":{');
        return { answer, text };
      }),
    );
    const records = await Promise.all(
      answers.map(async ({ answer, text }) => {
        const record = await bench.recordOf(answer, key);
        expect(record).toMatchObject({ outcome: 'completed', written_off: '0', usage_source: 'engine' });
        expect(record.input_tokens).toBeGreaterThan(preamble);
        expect(Number(record.cost)).toBeCloseTo(usd(record), 12);
        expect(costsIn(text)).toEqual([Number(record.cost)]);
        return record;
      }),
    );
    const spent = records.reduce((sum, { cost }) => sum + Number(cost), 0);
    const wallet = await eventually(async () => {
      const now = await bench.wallet(key);
      return now.held === '0' ? now : null;
    });
    expect(Number(wallet.balance)).toBeCloseTo(1000 - spent, 9);
    const summary: Body = await (await bench.gateway.request('/v1/usage/summary?group_by=model', { key })).json();
    const total = summary.data.reduce((sum: number, { cost }: Body) => sum + Number(cost), 0);
    expect(total).toBeCloseTo(spent, 9);
  });

  it('adds its template to holds and estimates after the first count', async () => {
    const estimate = async (): Promise<number> => {
      const headers = { 'x-headgate-dry-run': 'true' };
      const answer: Body = await (
        await bench.post('/v1/chat/completions', routes['/v1/chat/completions']?.('first', 1), { headers })
      ).json();
      return Number(answer.estimated_cost);
    };
    const before = await estimate();
    await (await bench.post('/v1/chat/completions', routes['/v1/chat/completions']?.('first', 1))).text();
    const taught = (await estimate()) - before;
    expect(taught * 1e7).toBeGreaterThan(preamble - 200);
    expect(taught * 1e7).toBeLessThanOrEqual(preamble + 50);
  });

  it('adds nothing to text completions, which have no template', async () => {
    const body = { model: 'first', prompt: Array.from({ length: 100 }, () => 'Hello'), max_tokens: 1 };
    const forecast = async (): Promise<Body> => {
      const headers = { 'x-headgate-dry-run': 'true' };
      return (await bench.post('/v1/completions', body, { headers })).json();
    };
    const before = await forecast();
    await (await bench.post('/v1/chat/completions', routes['/v1/chat/completions']?.('first', 1))).text();
    expect(await forecast()).toEqual(before);
    const { key } = await openOrganization(bench.gateway, '0.002');
    const got = await bench.post('/v1/completions', body, { key });
    expect(got.status, await got.text()).toBe(200);
  });

  it('has the unpaid template written off when the wallet is too small, and shows what was charged', async () => {
    // Pays for the hold of the first request, and not for the template.
    const { key } = await openOrganization(bench.gateway, '0.0001');
    const body = { ...routes['/v1/chat/completions']?.('plain', 1), usage: { include: true } };
    for (let tries = 0; ; tries += 1) {
      const answer = await bench.post('/v1/chat/completions', body, { key });
      const text = await answer.text();
      if (answer.status === 402) break;
      const record = await bench.recordOf(answer, key);
      expect(costsIn(text)).toEqual([Number(record.cost)]);
      expect(tries).toBeLessThan(3);
    }
    expect(Number((await bench.wallet(key)).balance)).toBeGreaterThanOrEqual(0);
  });
});

it('charges a picture in an embedding in full, though it has more tokens than the body has bytes', async () => {
  const { key } = await openOrganization(bench.gateway, '10');
  const url = 'data:image/png;base64,aGk=';
  const content = [{ type: 'image_url', image_url: { url } }];
  const answer = await bench.post(
    '/v1/embeddings',
    { model: 'pictures', messages: [{ role: 'user', content }] },
    { key },
  );
  await answer.text();
  expect(await bench.recordOf(answer, key)).toMatchObject({
    input_tokens: pictureTokens,
    cost: '0.0003',
    written_off: '0',
  });
});

describe('X-Headgate-Max-Cost with an uncounted template', () => {
  const ask = async (model: string, stream: boolean, cap: string) => {
    const { key } = await openOrganization(bench.gateway, '10');
    const body = { ...routes['/v1/chat/completions']?.(model, 1), max_tokens: 3000, stream, usage: { include: true } };
    const headers = { 'x-headgate-max-cost': cap };
    const answer = await bench.post(
      '/v1/chat/completions',
      { ...body, standin: { output_tokens: 3000 } },
      { key, headers },
    );
    const text = await answer.text();
    expect(answer.status, text).toBe(200);
    return { text, record: await bench.recordOf(answer, key) };
  };

  it('ends a stream at the cap, and charges no more', async () => {
    const { text, record } = await ask('capped', true, '0.0001');
    const error = framesOf(text).at(-2)?.error;
    expect(error).toMatchObject({ code: 'insufficient_funds', type: 'billing_error' });
    expect(error.message).toContain('x-headgate-max-cost');
    expect(Number(record.cost)).toBeLessThanOrEqual(0.0001);
    expect(record).toMatchObject({ outcome: 'ended', reason: 'insufficient_funds' });
  });

  it.each([false, true])('never charges more than the cap, streamed: %s', async (stream) => {
    const { text, record } = await ask('plain', stream, '0.00025');
    expect(Number(record.cost)).toBeLessThanOrEqual(0.00025);
    expect(Number(record.cost) + Number(record.written_off)).toBeCloseTo(usd(record), 12);
    for (const cost of costsIn(text)) expect(cost).toBe(Number(record.cost));
  });
});
