import { createServer, type Server } from 'node:http';
import { readdirSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { enoughOfTheHour, reconcile } from '#test/reconcile/mixed-traffic.ts';
import {
  type Body,
  errorOf,
  eventually,
  externalFile,
  framesOf,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

let far: Server | null = null;

/** Somebody else's server: it says which model it was asked for, and calls every model by a path. */
async function startFar(): Promise<string> {
  far = createServer((request, response) => {
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const asked = parts.length === 0 ? null : JSON.parse(Buffer.concat(parts).toString()).model;
      const usage = { prompt_tokens: 3, completion_tokens: 2, total_tokens: 5 };
      const choices = [{ index: 0, message: { role: 'assistant', content: `asked ${asked}` }, finish_reason: 'stop' }];
      response.setHeader('content-type', 'application/json');
      if (asked === 'far-lost') {
        const error = {
          message: 'The model `far-lost` does not exist.',
          type: 'NotFoundError',
          param: 'model',
          code: 404,
        };
        response.writeHead(404).end(JSON.stringify({ error }));
        return;
      }
      response.end(
        JSON.stringify({ id: 'x', object: 'chat.completion', created: 1, model: '/models/x', choices, usage }),
      );
    });
  });
  await new Promise<void>((resolve) => far?.listen(0, '127.0.0.1', resolve));
  return `http://127.0.0.1:${(far.address() as AddressInfo).port}`;
}
afterAll(() => far?.close());

const tunedPrice = 'pricing: { input_per_million: 1, cached_input_per_million: 0.5, output_per_million: 4 }';
beforeAll(enoughOfTheHour);
const bench = useInference(async () => ({
  engines: {
    chat: standinFile('chat', {
      lines: [
        'lora:',
        `  - { id: tuned, path: test/tuned-lora, aliases: [The Tuned One], ${tunedPrice} }`,
        '  - { id: plain, path: test/plain-lora, owned_by: us }',
        'max_loras: 2',
        'max_lora_rank: 64',
      ],
    }),
    lost: standinFile('lost', { lines: ['lora: [{ id: lost-tuned, path: /nowhere/lora }]'] }),
    blind: standinFile('blind', {
      flags: ['--hide-adapters'],
      lines: ['lora: [{ id: blind-tuned, path: test/blind-lora }]'],
    }),
    far: externalFile('far', await startFar(), {
      lines: [
        'upstream_model: far-base',
        'lora: [{ id: far-tuned, upstream_model: far-lora }, { id: far-plain }, { id: far-lost }]',
      ],
    }),
  },
}));

const ask = async (body: object): Promise<Body> => {
  const answer = await bench.chat(body);
  expect(answer.status, await answer.clone().text()).toBe(200);
  const answered: Body = await answer.json();
  answered.record = await bench.recordOf(answer);
  return answered;
};

describe('a LoRA adapter', () => {
  it('returns 503 with a plain message when it is missing or its engine does not list it', async () => {
    for (const model of ['lost', 'lost-tuned', 'blind-tuned']) {
      const error = await errorOf(await bench.chat({ model }));
      expect(error).toMatchObject({ status: 503, code: 'upstream_error' });
      expect(error.message).toMatch(/A LoRA adapter of this model was not found/);
      expect(error.message).not.toMatch(/nowhere|standin/);
    }
  });

  it('returns 502 with a plain message when an external engine has not loaded it', async () => {
    const error = await errorOf(await bench.chat({ model: 'far-lost' }));
    expect(error).toMatchObject({ status: 502, code: 'upstream_error' });
    expect(error.message).toContain('has not loaded this adapter');
  });

  it('is hidden from a key for its base, and its base from a key for the adapter', async () => {
    for (const [own, other] of [
      ['chat', 'tuned'],
      ['tuned', 'chat'],
    ]) {
      const made = await bench.post('/v1/keys', { name: `only ${own}`, models: [own] });
      const { secret: key }: Body = await made.json();
      expect(await errorOf(await bench.chat({ model: other }, { key }))).toMatchObject({ code: 'model_not_found' });
      const listed: Body = await (await bench.gateway.request('/v1/models', { key })).json();
      expect(listed.data.map(({ id, parent }: Body) => [id, parent])).toEqual([[own, null]]);
      const read: Body = await (await bench.gateway.request(`/v1/models/${own}`, { key })).json();
      expect([read.id, read.parent]).toEqual([own, null]);
      expect((await bench.chat({ model: own }, { key })).status).toBe(200);
    }
  });

  it("is listed with its base as parent, and with its own price or its base's", async () => {
    const { data }: Body = await (await bench.gateway.request('/v1/models')).json();
    const shown = new Map(data.map((model: Body) => [model.id, model]));
    const base = { task_type: 'chat', context_length: 8192, parent: 'chat' };
    expect(shown.get('chat')).toMatchObject({ parent: null, pricing: { prompt: '0.0000001' } });
    expect(shown.get('tuned')).toMatchObject({
      ...base,
      aliases: ['The Tuned One'],
      owned_by: 'test',
      hugging_face_id: 'test/tuned-lora',
      pricing: { prompt: '0.000001', completion: '0.000004', input_cache_read: '0.0000005' },
    });
    expect(shown.get('plain')).toMatchObject({ ...base, owned_by: 'us', pricing: { prompt: '0.0000001' } });
  });

  it("is answered by its base's replica under its own id, streamed or not, at its own price", async () => {
    for (const model of ['tuned', 'the tuned one', 'test/tuned-lora']) {
      const { model: answered, usage, record } = await ask({ model, messages: [{ role: 'user', content: model }] });
      expect(answered).toBe('tuned');
      expect(record).toMatchObject({ model: 'tuned', outcome: 'completed' });
      const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
      const microUsd = (usage.prompt_tokens - cached) * 1 + cached * 0.5 + usage.completion_tokens * 4;
      expect(Math.round(Number(record.cost) * 1e12)).toBe(microUsd * 1e6);
    }
    const streamed = framesOf(await (await bench.chat({ model: 'plain', stream: true })).text());
    expect([...new Set(streamed.slice(0, -1).map((frame: Body) => frame.model))]).toEqual(['plain']);
    const engines: Body = await (await bench.gateway.request('/v1/admin/engines')).json();
    expect(engines.data.map(({ id, adapters }: Body) => [id, adapters])).toContainEqual(['chat', ['tuned', 'plain']]);
    expect(engines.data.map(({ id }: Body) => id)).not.toContain('tuned');
    const running = readdirSync(join(bench.gateway.dataDir, 'engines', 'running'));
    expect(running.filter((name) => name.includes('tuned') || name.includes('plain'))).toEqual([]);
  });

  it('shares no cached prompt and no stored answer with its base or other adapters', async () => {
    const messages = [{ role: 'user', content: 'the same words again and again '.repeat(60) }];
    const cached: number[] = [];
    for (const model of ['tuned', 'tuned', 'chat', 'plain']) {
      const { usage } = await ask({ model, messages });
      cached.push(usage.prompt_tokens_details?.cached_tokens ?? 0);
    }
    // One block is the template's own, and in the cache of each by now.
    expect(cached.map((count) => count > 100)).toEqual([false, true, false, false]);
    const made = await bench.post('/v1/keys', { name: 'cached', cache_responses: true });
    const { secret: key }: Body = await made.json();
    const hits: (string | null)[] = [];
    for (const model of ['tuned', 'chat', 'plain', 'tuned']) {
      const answer = await bench.chat({ model }, { key });
      await answer.text();
      hits.push(answer.headers.get('x-headgate-cache'));
    }
    expect(hits).toEqual(['miss', 'miss', 'miss', 'hit']);
  });

  it("is reconciled with its base against the engine's counters, failed answers included", async () => {
    for (const model of ['chat', 'tuned', 'plain']) {
      await ask({ model, n: 2 });
      expect((await bench.chat({ model, standin: { abort_after: 2 } })).status).toBe(502);
    }
    const lines = await eventually(async () => {
      const { data }: Body = await reconcile(bench);
      const found = data.filter(({ model }: Body) => ['chat', 'tuned', 'plain'].includes(model));
      const kinds = found.flatMap(({ explanations }: Body) => explanations.map(({ kind }: Body) => kind));
      return kinds.includes('carried') || kinds.includes('running') ? null : found;
    });
    expect(lines.length).toBeGreaterThan(0);
    for (const line of lines) {
      expect(line).toMatchObject({ model: 'chat', state: 'balanced' });
      expect(line.difference).toMatchObject({ prompt_tokens: 0, completion_tokens: 0 });
      expect(line.engines.requests).toBeGreaterThan(2);
      const kinds = line.explanations.map(({ kind }: Body) => kind);
      expect(kinds).not.toContain('undelivered');
      expect(new Set(kinds).size).toBe(kinds.length);
    }
  });

  it('is requested from an external engine by its name there', async () => {
    for (const [model, upstream] of [
      ['far', 'far-base'],
      ['far-tuned', 'far-lora'],
      ['far-plain', 'far-plain'],
    ]) {
      const answer = await ask({ model });
      expect([answer.model, answer.choices[0].message.content]).toEqual([model, `asked ${upstream}`]);
      expect(answer.record.model).toBe(model);
    }
  });
});
