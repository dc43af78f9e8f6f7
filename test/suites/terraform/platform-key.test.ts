import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterEach, describe, expect, it } from 'vitest';
import { runCli } from '#test/cli/run-cli.ts';
import { createTestDatabase } from '#test/database.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { type RunGateway, usePlace } from '#test/terraform/run-gateway.ts';

const newPlace = usePlace();
const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

const newKey = (): string => randomBytes(32).toString('base64');

/** Its inputs, and its state, hold a secret. */
const secretive = `
variable "password" {
  type      = string
  sensitive = true
}
resource "terraform_data" "one" {
  input = var.password
}
`;

async function applied(gateway: RunGateway, clusterId: string, password: string): Promise<Body> {
  const run = await gateway.apply('secretive', clusterId, { password });
  return gateway.becomes(run.id, 'APPLIED');
}

/** A cluster of a gateway under a first key, with a stack on it that was applied twice. */
async function withState(key: string) {
  const place = await newPlace();
  const gateway = await place.startHere({ env: { HEADGATE_PLATFORM_KEY: key } });
  const { id } = await gateway.made('/v1/organizations', { name: 'Keys' });
  const cluster = await gateway.cluster(place.server, id);
  await gateway.upload('secretive', secretive);
  const password = randomBytes(12).toString('hex');
  await applied(gateway, cluster.id, `${password}-first`);
  const run = await applied(gateway, cluster.id, password);
  return { place, gateway, cluster, run, password };
}

describe('a replaced platform key', () => {
  it('encrypts no run any more, and can be removed', async () => {
    const [old, fresh] = [newKey(), newKey()];
    const { place, gateway, cluster, run, password } = await withState(old);
    const marks = async (): Promise<string[]> => {
      const rows = await place.sql<{ mark: string }[]>`
        select distinct encode(substr(inputs, 2, 16), 'escape') as mark from runs
        union select encode(substr(state, 2, 16), 'escape') from stack_states`;
      return rows.map(({ mark }) => mark);
    };
    const before = await marks();
    expect(before).toHaveLength(1);
    await gateway.stop();

    const rotating = await place.startHere({ home: gateway.home, env: { HEADGATE_PLATFORM_KEY: `${fresh},${old}` } });
    await eventually(async () => (await marks()).length === 1 && (await marks())[0] !== before[0]);
    await rotating.stop();

    const without = await place.startHere({ home: gateway.home, env: { HEADGATE_PLATFORM_KEY: fresh } });
    // It opens the inputs of a run of before, and the state.
    const destroying = await without.made(`/v1/runs/${run.id}/destroy`);
    expect(await without.becomes(destroying.id, 'DESTROYED')).toMatchObject({ changes: { remove: 1 } });
    await applied(without, cluster.id, password);
    await without.stop();

    const wrong = await place.startHere({ home: gateway.home, env: { HEADGATE_PLATFORM_KEY: old } });
    const body = { cluster_id: cluster.id, inputs: { password } };
    const refused = await wrong.ask('/v1/stacks/secretive/apply', { body });
    expect([refused.status, refused.body.error.code]).toEqual([503, 'SECRETS_UNAVAILABLE']);
    const [mark] = await marks();
    expect(refused.body.error.message).toContain(`the platform key with the fingerprint ${mark}`);
    expect(refused.body.error.message).toContain(`this gateway has ${before[0]} (HEADGATE_PLATFORM_KEY)`);
    expect((await wrong.ask(`/v1/runs/${run.id}/destroy`, { method: 'POST' })).status).toBe(503);
    expect(wrong.output).toContain('this gateway cannot encrypt secrets');
  });

  it('leaves runs pending on a gateway with another key until it has the right one', async () => {
    const key = newKey();
    const { place, gateway } = await withState(key);
    await gateway.stop();
    // As another gateway of the database would have queued it.
    await place.sql`
      insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, status, inputs,
        created_at)
      select gen_random_uuid(), installation_id, cluster_id, organization_id, stack_version_id, 'destroy', 'PENDING',
        inputs, clock_timestamp() from runs order by id desc limit 1`;
    const wrong = await place.startHere({ home: gateway.home, env: { HEADGATE_PLATFORM_KEY: newKey() } });
    const told = 'runs are waiting: this gateway does not have the platform key that encrypts them';
    await expect.poll(() => wrong.output).toContain(told);
    const [waiting] = (await wrong.ask('/v1/runs?status=PENDING')).body.data;
    expect(waiting.operation).toBe('destroy');
    await wrong.stop();
    const right = await place.startHere({ home: gateway.home, env: { HEADGATE_PLATFORM_KEY: key } });
    // Sealed for the run that it was copied from, and not for this one.
    const failed = await right.becomes(waiting.id, 'FAILED');
    expect(failed).toMatchObject({ failure_code: 'RUNNER_UNAVAILABLE' });
    expect(failed.failure_message).toMatch(/^its inputs cannot be read: A secret cannot be decrypted: it was changed/);
  });
});

describe('a backup', () => {
  it('contains runs, logs and states without clear secrets, and its restore can destroy the resources', async () => {
    const key = newKey();
    const { place, gateway, run, password } = await withState(key);
    const folder = mkdtempSync(join(tmpdir(), 'hg-backup-'));
    cleanups.push(() => rmSync(folder, { recursive: true, force: true }));
    const file = join(folder, 'one.backup');
    const env = { DATABASE_URL: place.databaseUrl, HEADGATE_DATA_DIR: gateway.home.dataDir };
    const made = await runCli(['backup', file, '--json'], { env });
    expect(made).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(made.stdout)).toMatchObject({ running_runs: 0 });
    const text = gunzipSync(readFileSync(file)).toString('latin1');
    for (const form of [password, Buffer.from(password).toString('hex'), Buffer.from(password).toString('base64')]) {
      expect(text).not.toContain(form);
    }
    for (const clear of ['PRIVATE KEY', key]) expect(text).not.toContain(clear);
    const log = await gateway.log(run.id);
    await gateway.stop();

    const copy = await createTestDatabase();
    cleanups.push(() => copy.drop());
    const restored = await runCli(['restore', file, '--replace'], { env: { ...env, DATABASE_URL: copy.url } });
    expect(restored).toMatchObject({ code: 0 });
    const moved = await place.startHere({ databaseUrl: copy.url, env: { HEADGATE_PLATFORM_KEY: key } });
    expect(await moved.log(run.id)).toEqual(log);
    const destroying = await moved.made(`/v1/runs/${run.id}/destroy`);
    expect(await moved.becomes(destroying.id, 'DESTROYED')).toMatchObject({ changes: { remove: 1 } });
    await moved.stop();
  });
});
