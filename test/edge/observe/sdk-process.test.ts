import { describe, expect, it } from 'vitest';
import { clientOf, givenKey, repository, useProcesses } from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';

describe('an SDK registered by NODE_OPTIONS', () => {
  it('receives the spans of an unmodified gateway', async () => {
    const gateway = processes.run({
      home: processes.home(),
      databaseUrl: await processes.database(),
      env: {
        HEADGATE_BOOTSTRAP_KEY: givenKey,
        NODE_OPTIONS: `--import=${repository}test/edge/observe/fixtures/register-sdk.ts`,
      },
    });
    const url = await gateway.url();
    const headers = { authorization: `Bearer ${givenKey}`, 'content-type': 'application/json', traceparent };
    const body = JSON.stringify({ model: 'chat', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 4 });
    const answer = await fetch(new URL('/v1/chat/completions', url), { method: 'POST', headers, body });
    await answer.text();
    expect(answer.status).toBe(200);
    const [, told = ''] = await gateway.printed(/^span (\{"name":"POST .*\})$/m);
    expect(JSON.parse(told)).toMatchObject({
      name: 'POST /v1/chat/completions',
      parent: 'b7ad6b7169203331',
      attributes: { 'gen_ai.request.model': 'chat', 'http.response.status_code': 200 },
    });
    expect((await clientOf(url).recordOf(answer)).outcome).toBe('completed');
  });
});
