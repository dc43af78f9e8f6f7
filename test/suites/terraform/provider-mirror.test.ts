import { afterEach, describe, expect, it } from 'vitest';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { host, Mirror } from './provider/mirror.ts';
import { type Place, type RunGateway, usePlace } from '#test/terraform/run-gateway.ts';

const newPlace = usePlace();
const mirrors: Mirror[] = [];
afterEach(() => {
  for (const mirror of mirrors.splice(0)) mirror.close();
});

function newMirror(): Mirror {
  const mirror = new Mirror();
  mirrors.push(mirror);
  return mirror;
}

const noteStack = (constraint = '>= 1.0'): string => `
terraform {
  required_providers {
    tiny = {
      source  = "example/tiny"
      version = "${constraint}"
    }
  }
}
variable "words" { default = "hello" }
resource "tiny_note" "one" { text = var.words }
output "text" { value = tiny_note.one.text }
`;

interface Bench {
  readonly place: Place;
  readonly gateway: RunGateway;
  readonly clusterId: string;
}

async function withMirror(mirror: Mirror | string): Promise<Bench> {
  const place = await newPlace();
  const folder = typeof mirror === 'string' ? mirror : mirror.folder;
  const gateway = await place.start({ env: { HEADGATE_PROVIDER_MIRROR: folder } });
  const { id } = await gateway.made('/v1/organizations', { name: 'Providers' });
  const cluster = await gateway.cluster(place.server, id);
  return { place, gateway, clusterId: cluster.id };
}

async function ended({ gateway, clusterId }: Bench, stack: string, inputs: object = {}): Promise<Body> {
  const { id } = await gateway.apply(stack, clusterId, inputs);
  return gateway.becomes(id, 'APPLIED', 'FAILED');
}

const initOf = async ({ gateway }: Bench, { id }: Body): Promise<string> =>
  (await gateway.log(id)).map(({ phase, message }) => (phase === 'init' ? message : '')).join('\n');

describe('a provider mirror folder', () => {
  it('is named in the error of an apply when it is missing', async () => {
    const { gateway, clusterId } = await withMirror('/nonexistent/mirror');
    const body = { cluster_id: clusterId, inputs: { folder: '/tmp/x', slots: 1 } };
    const refused = await gateway.ask('/v1/stacks/scheduler/apply', { body });
    expect([refused.status, refused.body.error.code]).toEqual([503, 'RUNNER_UNAVAILABLE']);
    expect(refused.body.error.message).toContain('HEADGATE_PROVIDER_MIRROR is /nonexistent/mirror');
  });

  it('without a required provider fails the run, with the provider and the setting', async () => {
    const mirror = newMirror();
    const bench = await withMirror(mirror);
    const pushed = await bench.gateway.upload('note', noteStack());
    const provider = { source: 'example/tiny', version: '>= 1.0' };
    expect(pushed.body.providers).toEqual([{ ...provider, in_mirror: false }]);
    const missing = await ended(bench, 'note');
    expect(missing).toMatchObject({ status: 'FAILED', failure_code: 'INIT_FAILED' });
    expect(missing.failure_message).toContain(`provider ${host}/example/tiny was not found`);
    expect(missing.failure_message).toContain('HEADGATE_PROVIDER_MIRROR');
    mirror.unpacked('1.0.0');
    await eventually(async () => (await bench.gateway.ask('/v1/stacks/note')).body.providers[0].in_mirror);
    await bench.gateway.upload('later', noteStack('>= 2.0'));
    const older = await ended(bench, 'later');
    expect(older).toMatchObject({ status: 'FAILED', failure_code: 'INIT_FAILED' });
    expect(older.failure_message).toMatch(/example\/tiny.*>= 2\.0/);
  });

  it.each(['packed', 'unpacked'] as const)(
    'that is %s is used by a run in bubblewrap, and no other source',
    async (layout) => {
      const mirror = newMirror();
      await mirror[layout]('1.0.0');
      const bench = await withMirror(mirror);
      await bench.gateway.upload('note', noteStack());
      const applied = await ended(bench, 'note', { words: 'from a provider' });
      expect(applied).toMatchObject({ status: 'APPLIED', failure_message: null, changes: { add: 1 } });
      expect(applied.outputs.text).toEqual({ sensitive: false, value: 'from a provider' });
      const destroying = await bench.gateway.made(`/v1/runs/${applied.id}/destroy`);
      expect(await bench.gateway.becomes(destroying.id, 'DESTROYED')).toMatchObject({ changes: { remove: 1 } });
    },
  );

  it('is used in the version of the last run, even if it has a newer one', async () => {
    const mirror = newMirror();
    await mirror.packed('1.0.0');
    const bench = await withMirror(mirror);
    await bench.gateway.upload('note', noteStack());
    await ended(bench, 'note');
    await mirror.packed('1.1.0');
    const again = await ended(bench, 'note', { words: 'changed' });
    expect(again.status).toBe('APPLIED');
    expect(await initOf(bench, again)).toMatch(/v1\.0\.0/);
    expect(await initOf(bench, again)).not.toMatch(/v1\.1\.0/);
    const [row] = await bench.place.sql<{ lock: string }[]>`
      select encode(lock_file, 'escape') as lock from stack_states order by serial desc limit 1`;
    expect(row?.lock).toContain('"1.0.0"');

    // Another version of the stack chooses anew.
    const newer = await bench.gateway.upload('note', noteStack('>= 1.1'));
    expect(newer.status).toBe(200);
    const chosen = await ended(bench, 'note', { words: 'newer' });
    expect(chosen).toMatchObject({ status: 'APPLIED', failure_message: null });
    expect(await initOf(bench, chosen)).toMatch(/v1\.1\.0/);
  });

  it('is used by a later run only with the same packages', async () => {
    const mirror = newMirror();
    await mirror.packed('1.0.0');
    const bench = await withMirror(mirror);
    await bench.gateway.upload('note', noteStack());
    await ended(bench, 'note');
    // A package of the same version that is another one is not taken.
    await mirror.packed('1.0.0', '# repacked\n');
    const repacked = await ended(bench, 'note', { words: 'again' });
    expect(repacked).toMatchObject({ status: 'FAILED', failure_code: 'INIT_FAILED' });
    expect(repacked.failure_message).toMatch(/example\/tiny.*checksums/);
  });

  it('must match the lock file of a package', async () => {
    const mirror = newMirror();
    mirror.unpacked('1.0.0');
    const bench = await withMirror(mirror);
    const lock = `provider "${host}/example/tiny" {
  version = "1.0.0"
  hashes  = ["h1:${Buffer.alloc(32, 7).toString('base64')}"]
}
`;
    const pushed = await bench.gateway.upload('locked', noteStack(), { '.terraform.lock.hcl': lock });
    expect(pushed.status).toBe(201);
    const refused = await ended(bench, 'locked');
    expect(refused).toMatchObject({ status: 'FAILED', failure_code: 'INIT_FAILED' });
    expect(refused.failure_message).toMatch(/example\/tiny.*checksums/);
  });
});
