import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { connectDb } from '#base/database/connect-database.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import {
  clientOf,
  engineFile,
  engineRecords,
  givenKey,
  onlyEngine,
  useProcesses,
} from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const secret = 'the-value-of-a-secret-that-nobody-keeps';
const env = { HEADGATE_BOOTSTRAP_KEY: givenKey, TEST_SECRET: secret };

/** Stopped soon when nobody asks; given a secret by reference. */
const chat = (...flags: string[]) =>
  engineFile('chat', { flags, lines: ['idle_seconds: 1', 'env: { HF_TOKEN: "${TEST_SECRET}" }'] });

describe('a gateway restarted after a rejected rollout', () => {
  it('answers with the previous definition, also after an idle stop, and stores no secret', async () => {
    const home = processes.home({ chat: chat() });
    const databaseUrl = await processes.database();
    const first = processes.run({ home, databaseUrl, env });
    const client = clientOf(await first.url());
    expect((await client.chat({})).status).toBe(200);
    home.writeEngine('chat', chat('--no-such-flag'));
    first.signal('SIGHUP');
    const asked = client.chat({});
    await eventually(async () => {
      await client.chat({});
      const engine: Body = await client.get('/v1/admin/engines/chat');
      return engine.rollout?.state === 'refused';
    });
    expect((await asked).status).toBe(200);
    first.signal('SIGKILL');
    await first.exited;

    const second = processes.run({ home, databaseUrl, env });
    const next = clientOf(await second.url());
    expect((await next.chat({})).status).toBe(200);
    const { pid } = onlyEngine(home.dataDir);
    expect(readFileSync(`/proc/${pid}/cmdline`, 'utf8')).not.toContain('--no-such-flag');
    expect(readFileSync(`/proc/${pid}/environ`, 'utf8')).toContain(secret);
    await eventually(() => Promise.resolve(engineRecords(home.dataDir).length === 0));
    const again = await next.chat({});
    expect(again.status).toBe(200);
    expect(again.headers.get('x-headgate-start')).toBe('cold');
    const engine: Body = await next.get('/v1/admin/engines/chat');
    expect(engine).toMatchObject({ state: 'ready', last_failure: null, rollout: { state: 'refused' } });
    expect(engine.rollout.message).toMatch(/rejected its settings/);

    const db = connectDb(databaseUrl);
    const rows = await db.sql<{ text: string }[]>`select row_to_json(good)::text as text from fleet_good_specs good`;
    await db.close();
    expect(rows).toHaveLength(1);
    expect(rows[0]?.text).toContain('${TEST_SECRET}');
    expect(rows[0]?.text).not.toContain(secret);
    second.signal('SIGTERM');
    expect(await second.exited).toEqual({ code: 0, signal: null });
  });
});
