import { afterAll, describe, expect, it } from 'vitest';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { host, Mirror } from './provider/mirror.ts';
import { openSite, type Site, usePlace, useSites } from '#test/terraform/run-gateway.ts';

const newPlace = usePlace();
let mirror: Mirror | null = null;
const newSite = useSites(() => {
  mirror = new Mirror();
  return { HEADGATE_PROVIDER_MIRROR: mirror.folder };
});
afterAll(() => mirror?.close());

const noteStack = (source: string, constraint: string): string => `
terraform {
  required_providers {
    tiny = {
      source  = "${source}"
      version = "${constraint}"
    }
  }
}
variable "words" { default = "hello" }
resource "tiny_note" "one" { text = var.words }
output "text" { value = tiny_note.one.text }
`;

/** The mirror of all tests, where a test has a provider of its own: the same program in another namespace. */
interface Bench extends Site {
  /** Its source, such as `example1/tiny`. It is also a part of the name of the stack `note`. */
  readonly source: string;
  readonly note: string;
  readonly packed: (version: string, comment?: string) => Promise<void>;
  readonly unpacked: (version: string) => void;
  /** A module with a resource of the provider. */
  readonly module: (constraint?: string) => string;
}

let count = 0;
async function newBench(): Promise<Bench> {
  const namespace = `example${(count += 1)}`;
  const source = `${namespace}/tiny`;
  const site = await newSite();
  return {
    ...site,
    source,
    note: `note-${count}`,
    packed: async (version, comment = '') => mirror?.packed(version, { comment, namespace }),
    unpacked: (version) => mirror?.unpacked(version, { namespace }),
    module: (constraint = '>= 1.0') => noteStack(source, constraint),
  };
}

async function ended({ gateway, cluster }: Bench, stack: string, inputs: object = {}): Promise<Body> {
  const { id } = await gateway.apply(stack, cluster.id, inputs);
  return gateway.becomes(id, 'APPLIED', 'FAILED');
}

const initOf = async ({ gateway }: Bench, { id }: Body): Promise<string> =>
  (await gateway.log(id)).map(({ phase, message }) => (phase === 'init' ? message : '')).join('\n');

describe('a provider mirror folder', () => {
  it('is named in the error of an apply when it is missing', async () => {
    const place = await newPlace();
    const env = { HEADGATE_PROVIDER_MIRROR: '/nonexistent/mirror' };
    const { gateway, cluster } = await openSite(place, await place.startHere({ env }));
    const body = { cluster_id: cluster.id, inputs: { folder: '/tmp/x', slots: 1 } };
    const refused = await gateway.ask('/v1/stacks/scheduler/apply', { body });
    expect([refused.status, refused.body.error.code]).toEqual([503, 'RUNNER_UNAVAILABLE']);
    expect(refused.body.error.message).toContain('HEADGATE_PROVIDER_MIRROR is /nonexistent/mirror');
  });

  it('without a required provider fails the run, with the provider and the setting', async () => {
    const bench = await newBench();
    const pushed = await bench.gateway.upload(bench.note, bench.module());
    const provider = { source: bench.source, version: '>= 1.0' };
    expect(pushed.body.providers).toEqual([{ ...provider, in_mirror: false }]);
    const missing = await ended(bench, bench.note);
    expect(missing).toMatchObject({ status: 'FAILED', failure_code: 'INIT_FAILED' });
    expect(missing.failure_message).toContain(`provider ${host}/${bench.source} was not found`);
    expect(missing.failure_message).toContain('HEADGATE_PROVIDER_MIRROR');
    bench.unpacked('1.0.0');
    await eventually(async () => (await bench.gateway.ask(`/v1/stacks/${bench.note}`)).body.providers[0].in_mirror);
    await bench.gateway.upload('later', bench.module('>= 2.0'));
    const older = await ended(bench, 'later');
    expect(older).toMatchObject({ status: 'FAILED', failure_code: 'INIT_FAILED' });
    expect(older.failure_message).toMatch(new RegExp(`${bench.source}.*>= 2\\.0`));
  });

  it.each(['packed', 'unpacked'] as const)(
    'that is %s is used by a run in bubblewrap, and no other source',
    async (layout) => {
      const bench = await newBench();
      await bench[layout]('1.0.0');
      await bench.gateway.upload(bench.note, bench.module());
      const applied = await ended(bench, bench.note, { words: 'from a provider' });
      expect(applied).toMatchObject({ status: 'APPLIED', failure_message: null, changes: { add: 1 } });
      expect(applied.outputs.text).toEqual({ sensitive: false, value: 'from a provider' });
      const destroying = await bench.gateway.made(`/v1/runs/${applied.id}/destroy`);
      expect(await bench.gateway.becomes(destroying.id, 'DESTROYED')).toMatchObject({ changes: { remove: 1 } });
    },
  );

  it('is used in the version of the last run, even if it has a newer one', async () => {
    const bench = await newBench();
    await bench.packed('1.0.0');
    await bench.gateway.upload(bench.note, bench.module());
    await ended(bench, bench.note);
    await bench.packed('1.1.0');
    const again = await ended(bench, bench.note, { words: 'changed' });
    expect(again.status).toBe('APPLIED');
    expect(await initOf(bench, again)).toMatch(/v1\.0\.0/);
    expect(await initOf(bench, again)).not.toMatch(/v1\.1\.0/);
    const [row] = await bench.place.sql<{ lock: string }[]>`
      select encode(lock_file, 'escape') as lock from stack_states s join runs r using (installation_id)
      where r.id = ${again.id.replace('run_', '')}::uuid order by serial desc limit 1`;
    expect(row?.lock).toContain('"1.0.0"');

    // Another version of the stack chooses anew.
    const newer = await bench.gateway.upload(bench.note, bench.module('>= 1.1'));
    expect(newer.status).toBe(200);
    const chosen = await ended(bench, bench.note, { words: 'newer' });
    expect(chosen).toMatchObject({ status: 'APPLIED', failure_message: null });
    expect(await initOf(bench, chosen)).toMatch(/v1\.1\.0/);
  });

  it('is used by a later run only with the same packages', async () => {
    const bench = await newBench();
    await bench.packed('1.0.0');
    await bench.gateway.upload(bench.note, bench.module());
    await ended(bench, bench.note);
    // A package of the same version that is another one is not taken.
    await bench.packed('1.0.0', '# repacked\n');
    const repacked = await ended(bench, bench.note, { words: 'again' });
    expect(repacked).toMatchObject({ status: 'FAILED', failure_code: 'INIT_FAILED' });
    expect(repacked.failure_message).toMatch(new RegExp(`${bench.source}.*checksums`));
  });

  it('must match the lock file of a package', async () => {
    const bench = await newBench();
    bench.unpacked('1.0.0');
    const lock = `provider "${host}/${bench.source}" {
  version = "1.0.0"
  hashes  = ["h1:${Buffer.alloc(32, 7).toString('base64')}"]
}
`;
    const pushed = await bench.gateway.upload('locked', bench.module(), { '.terraform.lock.hcl': lock });
    expect(pushed.status).toBe(201);
    const refused = await ended(bench, 'locked');
    expect(refused).toMatchObject({ status: 'FAILED', failure_code: 'INIT_FAILED' });
    expect(refused.failure_message).toMatch(new RegExp(`${bench.source}.*checksums`));
  });
});
