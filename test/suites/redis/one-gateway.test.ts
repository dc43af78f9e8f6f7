import postgres from 'postgres';
import { expect, it } from 'vitest';
import { eventually } from '#test/inference/inference-gateway.ts';
import { givenKey, useProcesses } from '#test/programs/gateway-process.ts';
import { startRedis } from '#test/redis.ts';

const processes = useProcesses();

/** A request of long ago. */
const id = '00000000-0001-7000-8000-000000000000';

it('leaves the deletion of old contents to the other gateway when a gateway is killed during it', async () => {
  const redis = await startRedis();
  const databaseUrl = await processes.database();
  const sql = postgres(databaseUrl, { max: 3, onnotice: () => undefined });
  const deleted = async (): Promise<boolean> => (await sql`select from request_contents`).length === 0;
  const insert = () => sql`insert into request_contents values (${id}, ${id}, ${id}, '', '', false, false)`;
  const holders = async (): Promise<readonly unknown[]> => {
    const rows = await sql`select distinct pid from pg_locks where locktype = 'advisory' and granted
      and classid::bigint = hashtext('headgate lease')::bigint & 4294967295
      and database = (select oid from pg_database where datname = current_database())`;
    return rows.map((row) => row['pid'] as unknown);
  };
  try {
    const env = { HEADGATE_BOOTSTRAP_KEY: givenKey, REDIS_URL: redis.url };
    const first = processes.run({ home: processes.home(), databaseUrl, env });
    await first.url();
    const second = processes.run({ home: processes.home(), databaseUrl, env });
    await second.url();
    await insert();
    const row = Promise.withResolvers<void>();
    const held = sql.begin(async (tx) => {
      await tx`select from request_contents for update`;
      await row.promise;
    });
    const waits = async (): Promise<boolean> => {
      const rows = await sql`select from pg_stat_activity where datname = current_database()
        and wait_event_type = 'Lock' and query ilike 'delete from "request_contents"%'`;
      return rows.length > 0;
    };
    // The clock of the first began before that of the second.
    await eventually(waits);
    const before = await holders();
    first.signal('SIGKILL');
    await first.exited;
    row.resolve();
    await held;
    // PostgreSQL ends what the killed gateway had begun.
    await eventually(deleted);
    await insert();
    await eventually(deleted);
    const after = await holders();
    expect([before.length, after.length]).toEqual([1, 1]);
    expect(after).not.toEqual(before);
    second.signal('SIGTERM');
    expect(await second.exited).toEqual({ code: 0, signal: null });
    expect(await holders()).toEqual([]);
  } finally {
    await sql.end();
    await redis.stop();
  }
});
