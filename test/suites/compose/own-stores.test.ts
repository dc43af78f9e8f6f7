import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { chapterLines } from '#test/chapter-lines.ts';
import { startStack, type Stack } from './stack.ts';

/** An installation moves from the services `postgres` and `redis` to stores that the operator runs, by the chapter. */

const ownFile = `
services:
  gateway:
    networks: [own-stores]
networks:
  own-stores: {external: true, name: own-stores}
`;

let stack: Stack;
beforeAll(async () => {
  stack = await startStack({}, ownFile);
  await docker('network create --internal own-stores');
  const password = '-v "$PWD/compose/secrets/postgres_password:/password:ro" -e POSTGRES_PASSWORD_FILE=/password';
  await docker(`run -d --name db.example.com --network own-stores ${password} \\
    -e POSTGRES_USER=headgate -e POSTGRES_DB=headgate postgres:headgate-test postgres`);
  await docker(`run -d --name redis.example.com --network own-stores redis:headgate-test \\
    redis-server --save "" --protected-mode no`);
  await stack.shell(stack.quickStart);
}, 900_000);
afterAll(() => stack?.stop());

const docker = (line: string): Promise<string> => stack.shell(`docker ${line}`);

const query = (sql: string): Promise<string> => docker(`exec db.example.com psql -qAtU headgate -c "${sql}"`);

/** Calls the API, and must succeed. */
async function read(path: string): Promise<Json> {
  const answer = await stack.ask(path);
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

type Json = ReturnType<JSON['parse']>;

describe('the commands that move to external PostgreSQL and Redis', () => {
  it('keep the keys, the records and the balance', async () => {
    await expect.poll(async () => (await read('/v1/usage/requests')).data.length).toBe(1);
    const { balance } = await read('/v1/wallet');
    const chapter = join(stack.folder, 'compose/gateways.md');
    const [backup = '', move = ''] = chapterLines(chapter, 'Move to PostgreSQL and Redis of your own');
    await stack.shell(backup);
    stack.set({
      DATABASE_URL: 'postgres://headgate@db.example.com:5432/headgate',
      REDIS_URL: 'redis://redis.example.com:6379',
    });
    await stack.shell(move);
    await stack.ready();
    expect((await read('/v1/wallet')).balance).toBe(balance);
    expect((await read('/v1/usage/requests')).data).toHaveLength(1);
  });

  it('remove the services and keep their volumes', async () => {
    const listed = await docker(`ps --all --format '{{.Label "com.docker.compose.service"}}'`);
    expect(listed.split('\n').filter(Boolean).toSorted()).toEqual(['docker-gate', 'gateway']);
    const volumes = (await docker('volume ls -q')).split('\n');
    expect(volumes).toEqual(expect.arrayContaining(['headgate_backups', 'headgate_postgres']));
  });

  it('leave a working gateway that writes into the new stores', async () => {
    const printed = await stack.compose('exec', '-T', 'gateway', 'node', 'src/programs/headgate.js', 'doctor');
    expect(printed).toMatch(/^✓ postgresql .*answers/m);
    expect(printed).toMatch(/^✓ redis/m);
    const body = { model: 'standin-chat', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 5 };
    const answer = await stack.ask('/v1/chat/completions', body);
    expect([answer.status, await answer.text()]).toEqual([200, expect.stringContaining('"usage"')]);
    await expect.poll(() => query('select count(*) from usage_requests')).toBe('2\n');
    expect(await docker('exec redis.example.com redis-cli dbsize')).not.toBe('0\n');
  });
});
