import Anthropic from '@anthropic-ai/sdk';
import { describe, expect, it } from 'vitest';
import { type Body, openOrganization, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { errorOf } from './messages-client.ts';

/** Errors on Anthropic's routes have Anthropic's shape, whoever makes them; on all other routes they have not. */

const path = '/v1/messages';
const countPath = '/v1/messages/count_tokens';
const bench = useInference(() => ({
  engines: { chat: standinFile('chat'), unpriced: standinFile('unpriced', { priced: false }) },
  env: { HEADGATE_MAX_BODY_BYTES: '4096' },
}));

const asked = { model: 'chat', max_tokens: 4, messages: [{ role: 'user' as const, content: 'Hello' }] };

describe('the routes of Anthropic', () => {
  it.each([
    ['GET', path, { status: 405, type: 'invalid_request_error', code: 'method_not_allowed' }],
    ['DELETE', countPath, { status: 405, type: 'invalid_request_error', code: 'method_not_allowed' }],
    ['POST', `${path}/batches`, { status: 404, type: 'not_found_error', code: 'not_found' }],
    ['GET', `${path}/batches/msgbatch_1/results`, { status: 404, type: 'not_found_error', code: 'not_found' }],
  ])("return Anthropic's error shape: %s %s, %j", async (method, where, refusal) => {
    const answer = await bench.gateway.request(where, { method });
    expect(answer.headers.get('allow')).toBe(refusal.status === 405 ? 'POST' : null);
    expect(await errorOf(answer)).toMatchObject(refusal);
  });

  it.each([path, countPath])('return 413 for a body that is too large: %s', async (where) => {
    const answer = await bench.post(where, { ...asked, system: 'x'.repeat(5000) });
    expect(await errorOf(answer)).toMatchObject({ status: 413, type: 'request_too_large', code: 'request_too_large' });
  });

  it('return 503 for a model without a price', async () => {
    const error = await errorOf(await bench.post(path, { ...asked, model: 'unpriced' }));
    expect(error).toMatchObject({ status: 503, type: 'overloaded_error', code: 'pricing_unavailable' });
  });

  it.each([path, countPath])('return 403 for a suspended organization: %s', async (where) => {
    const { id, key } = await openOrganization(bench.gateway, '1');
    const change = { method: 'PATCH', body: { status: 'suspended' } };
    expect((await bench.gateway.request(`/v1/organizations/${id}`, change)).status).toBe(200);
    const error = await errorOf(await bench.post(where, asked, { key }));
    expect(error).toMatchObject({ status: 403, type: 'permission_error', code: 'organization_suspended' });
  });

  it("raise the SDK's own error classes with the known types", async () => {
    const options = { baseURL: bench.gateway.url, apiKey: bench.gateway.key, maxRetries: 0 };
    const { messages } = new Anthropic(options);
    const absent = messages.batches.retrieve('msgbatch_1');
    await expect(absent).rejects.toBeInstanceOf(Anthropic.NotFoundError);
    await expect(absent).rejects.toMatchObject({ type: 'not_found_error' });
    const large = messages.create({ ...asked, system: 'x'.repeat(5000) });
    await expect(large).rejects.toMatchObject({ status: 413, type: 'request_too_large' });
  });

  it('have AnthropicError as their error schema in the OpenAPI document', async () => {
    const { paths }: Body = await (await bench.gateway.request('/openapi.json')).json();
    const shapeOf = (where: string): string =>
      paths[where].post.responses.default.content['application/json'].schema.$ref;
    const shapes = [path, countPath, '/v1/responses'].map(shapeOf);
    expect(shapes.map((shape) => shape.split('/').at(-1))).toEqual(['AnthropicError', 'AnthropicError', 'Error']);
  });
});

it.each(['/v1/messagesx', '/v1/nothing', '/v1/responses', '/v1/chat/completions'])(
  "returns the gateway's own error shape on %s",
  async (where) => {
    const body: Body = await (await bench.gateway.request(where)).json();
    expect(Object.keys(body)).toEqual(['error']);
  },
);
