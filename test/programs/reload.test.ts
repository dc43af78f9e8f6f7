import { describe, expect, it } from 'vitest';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { clientOf, engineFile, givenKey, useProcesses } from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const env = { HEADGATE_BOOTSTRAP_KEY: givenKey };

describe('SIGHUP', () => {
  it('with an invalid file changes nothing and names the line; with the fixed file it applies all files', async () => {
    const home = processes.home({ chat: engineFile('chat') });
    const gateway = processes.run({ home, databaseUrl: await processes.database(), env });
    const client = clientOf(await gateway.url());
    const ids = async (): Promise<string[]> => {
      const { data }: Body = await client.get('/v1/models');
      return data.map(({ id }: Body) => id);
    };
    home.writeEngine('new', engineFile('new').replace('context_length: 8192', 'context_length: many'));
    gateway.signal('SIGHUP');
    await gateway.printed(/engines\/new\.yaml:6: context_length: .*previous configuration stays in effect/);
    expect(await ids()).toEqual(['chat']);

    home.writeEngine('new', engineFile('new'));
    gateway.signal('SIGHUP');
    await eventually(async () => (await ids()).includes('new'));
    expect((await client.chat({ model: 'new' })).status).toBe(200);
    gateway.signal('SIGTERM');
    expect(await gateway.exited).toEqual({ code: 0, signal: null });
  });
});
