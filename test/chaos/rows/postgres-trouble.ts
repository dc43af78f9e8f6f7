import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { booksName, type ChaosPostgres, gatewayPassword, gatewayRole } from '../parts/postgres.ts';
import type { Scene } from '../parts/scene.ts';
import type { Row } from '../row.ts';
import { type Outage, runOutage } from './postgres-away.ts';

/** PostgreSQL in trouble: restarted, failed over, or with an error for everything that is asked. */

const databaseName = 'database.test';

/** Lets an operator's change take effect: it does so for connections that are made after it. */
async function change(scene: Scene, statement: string): Promise<void> {
  await scene.postgres.sql.unsafe(statement);
  await scene.postgres.endConnections();
}

const changed = (name: string, what: string, begin: string, end: string): Row =>
  row(name, what, {
    begin: (scene) => change(scene, begin),
    end: (scene) => change(scene, end),
  });

const row = (name: string, what: string, outage: Outage): Row => ({
  name,
  what,
  run: (stage) => runOutage(stage, outage),
});

function restart(name: string, what: string, how: 'fast' | 'kill', more: Pick<Outage, 'scene'> = {}): Row {
  return row(name, what, {
    ...more,
    begin: ({ postgres }) => postgres.stop(how),
    end: ({ postgres }) => postgres.start(),
  });
}

const failover: Row = {
  name: 'pg-failover',
  what: 'PostgreSQL is killed, its synchronous stand-by takes over behind the same address',
  async run(stage) {
    const standbys: ChaosPostgres[] = [];
    await runOutage(stage, {
      async prepare({ postgres }) {
        const standby = await postgres.startStandby();
        stage.later(() => standby.close());
        standbys.push(standby);
      },
      begin: ({ postgres }) => postgres.stop('kill'),
      async end(scene) {
        const [standby] = standbys;
        if (standby === undefined) throw new Error('there is no stand-by');
        await standby.promote();
        scene.databaseProxy.pointTo(standby.port);
        scene.postgres = standby;
      },
    });
  },
};

const unresolved: Row = {
  name: 'pg-name-unresolved',
  what: "PostgreSQL's host name does not resolve for a while (EAI_AGAIN)",
  async run(stage) {
    const file = join(stage.dir, 'no-names');
    const preload = fileURLToPath(new URL('../parts/names.ts', import.meta.url));
    const env = { NODE_OPTIONS: `--import=${preload}`, CHAOS_NAME: databaseName, CHAOS_NAME_FAILS: file };
    await runOutage(stage, {
      scene: { env, databaseHost: databaseName },
      begin({ databaseProxy }) {
        writeFileSync(file, '');
        databaseProxy.cut();
      },
      end: () => rmSync(file),
    });
  },
};

/** An error of PostgreSQL's for every record, of a class that is not the record's fault. */
const oddErrors: Row = {
  name: 'pg-odd-errors',
  what: 'the books answer with XX000, 58030, 57014, 53100, 55000 and 0A000, one after the other',
  async run(stage) {
    const codes = ['XX000', '58030', '57014', '53100', '55000', '0A000'];
    let timer: NodeJS.Timeout | null = null;
    stage.later(() => void (timer !== null && clearInterval(timer)));
    await runOutage(stage, {
      async prepare({ postgres: { sql } }) {
        await sql`create table chaos_trouble (code text)`;
        await sql`grant select on chaos_trouble to public`;
        await sql.unsafe(`create function chaos_fail() returns trigger language plpgsql as $$
          declare found text;
          begin
            select code into found from public.chaos_trouble limit 1;
            if found is not null then raise exception using errcode = found, message = 'trouble'; end if;
            return new;
          end $$`);
        await sql`create trigger chaos_fails before insert on usage_requests for each row execute function chaos_fail()`;
      },
      async begin({ postgres: { sql } }) {
        let next = 0;
        const turn = async (): Promise<void> => {
          const code = codes[next % codes.length] ?? '';
          next += 1;
          await sql.begin(async (tx) => {
            await tx`delete from chaos_trouble`;
            await tx`insert into chaos_trouble values (${code})`;
          });
        };
        await turn();
        timer = setInterval(() => void turn().catch(() => undefined), (stage.seconds * 1000) / codes.length);
      },
      async end({ postgres: { sql } }) {
        if (timer !== null) clearInterval(timer);
        await sql`delete from chaos_trouble`;
      },
    });
  },
};

export const postgresTroubleRows: readonly Row[] = [
  restart('pg-restart', 'PostgreSQL is stopped and started again, by TCP', 'fast'),
  restart('pg-restart-socket', 'PostgreSQL is stopped and started again, by its unix socket', 'fast', {
    scene: { database: 'socket' },
  }),
  restart('pg-killed', 'PostgreSQL is killed (-9) and started again', 'kill'),
  failover,
  changed(
    'pg-password-rotated',
    'the password is another one for a while (28P01)',
    `alter role ${gatewayRole} password 'another'`,
    `alter role ${gatewayRole} password '${gatewayPassword}'`,
  ),
  unresolved,
  changed(
    'pg-out-of-connections',
    'PostgreSQL takes no more connections (53300)',
    `alter role ${gatewayRole} connection limit 0`,
    `alter role ${gatewayRole} connection limit -1`,
  ),
  changed(
    'pg-statement-timeout',
    'statements are ended after a millisecond (57014)',
    `alter role ${gatewayRole} in database ${booksName} set statement_timeout = '1ms'`,
    `alter role ${gatewayRole} in database ${booksName} reset statement_timeout`,
  ),
  changed(
    'pg-read-only',
    'PostgreSQL takes no writes (25006)',
    `alter role ${gatewayRole} in database ${booksName} set default_transaction_read_only = on`,
    `alter role ${gatewayRole} in database ${booksName} reset default_transaction_read_only`,
  ),
  oddErrors,
];
