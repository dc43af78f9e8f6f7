import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { parseId } from '#base/id.ts';
import { makeKeyPair, parsePrivateKey } from '#core/clusters/ssh-keys.ts';
import { hostKey, makeCluster, nodeBody } from '#test/api/cluster-support.ts';
import { type Answer, useApi } from '#test/api/test-api.ts';

const api = useApi();

const uuidOf = (cluster: Answer['body']): string => parseId('cluster', cluster.id) ?? '';
const openKey = (cluster: Answer['body']): Promise<string | null> => api().clusters.openPrivateKey(uuidOf(cluster));
const keyFile = (): string => join(api().dataDir, 'platform.key');
const rotate = (cluster: Answer['body'], body?: object): Promise<Answer> =>
  api().ask(`/v1/clusters/${cluster.id}/access-identity/rotate`, {
    method: 'POST',
    ...(body !== undefined && { body }),
  });

/** Everything that the database holds, in every form that a text may have in it. */
async function databaseText(): Promise<string> {
  const tables = await api().db.sql<{ name: string }[]>`
    select quote_ident(schemaname) || '.' || quote_ident(tablename) as name from pg_tables
    where schemaname not in ('pg_catalog', 'information_schema')`;
  const texts: string[] = [];
  for (const { name } of tables) {
    const rows = await api().db.sql.unsafe<{ row: string }[]>(`select t::text as row from ${name} t`);
    texts.push(...rows.map(({ row }) => row));
  }
  return texts.join('\n');
}

/** The secret part of an OpenSSH key, as text and as hexadecimal digits of every part of its bytes. */
function formsOf(privateKey: string): string[] {
  const body = privateKey.split('\n').filter((line) => !line.startsWith('-----') && line !== '');
  const bytes = Buffer.from(body.join(''), 'base64');
  // The last 128 bytes hold the seed.
  return [...body.slice(2), bytes.subarray(-112, -64).toString('hex'), bytes.subarray(-112, -64).toString('base64')];
}

afterEach(() => chmodSync(keyFile(), 0o600));

describe('the private key of a cluster', () => {
  it('is never stored or shown in clear: database, responses, log and audit log', async () => {
    const given = makeKeyPair('mine').privateKey;
    const answers: string[] = [];
    const clusters = [await makeCluster(api()), await makeCluster(api(), { access_identity: { private_key: given } })];
    for (const cluster of clusters) {
      answers.push(JSON.stringify(cluster), JSON.stringify((await api().ask(`/v1/clusters/${cluster.id}`)).body));
      answers.push(JSON.stringify((await api().ask('/v1/clusters')).body));
    }
    const [made, own] = [(await openKey(clusters[0])) ?? '', (await openKey(clusters[1])) ?? ''];
    expect(own).toBe(given);
    const everything = [await databaseText(), answers.join('\n'), api().logLines.join('\n')].join('\n');
    for (const form of [...formsOf(made), ...formsOf(own)]) expect(everything).not.toContain(form);
    expect(everything).not.toContain('PRIVATE KEY');
    expect(everything).toContain(clusters[0].access_identity.fingerprint);
  });

  it('matches the public key that the API shows', async () => {
    const cluster = await makeCluster(api());
    const pair = parsePrivateKey((await openKey(cluster)) ?? '');
    expect(cluster.access_identity).toMatchObject({
      public_key: `${pair.publicKey} headgate ${cluster.id}`,
      fingerprint: pair.fingerprint,
    });
  });

  it('is replaced by a rotation, with a generated or a given key', async () => {
    const cluster = await makeCluster(api());
    const first = await openKey(cluster);
    const made = await rotate(cluster);
    expect([made.status, made.body.access_identity.origin]).toEqual([200, 'generated']);
    expect(made.body.access_identity.public_key).not.toBe(cluster.access_identity.public_key);
    expect(await openKey(cluster)).not.toBe(first);
    const { privateKey, fingerprint } = makeKeyPair('x');
    const given = await rotate(cluster, { private_key: privateKey });
    expect(given.body.access_identity).toMatchObject({ origin: 'given', fingerprint });
    expect(await openKey(cluster)).toBe(privateKey);
    const wrong = await rotate(cluster, { private_key: 'x' });
    expect([wrong.status, wrong.body.error.details[0].field]).toEqual([400, 'private_key']);
    expect(await openKey(cluster)).toBe(privateKey);
  });

  it('cannot be decrypted in the row of another cluster', async () => {
    const [one, other] = [await makeCluster(api()), await makeCluster(api())];
    await api().db.sql`
      update clusters set access_sealed = (select access_sealed from clusters where id = ${uuidOf(one)})
      where id = ${uuidOf(other)}`;
    await expect(openKey(other)).rejects.toMatchObject({ code: 'secrets_unavailable' });
    await rotate(other);
    expect(await openKey(other)).toContain('PRIVATE KEY');
  });

  it('is deleted when the cluster is archived', async () => {
    const cluster = await makeCluster(api());
    await api().ask(`/v1/clusters/${cluster.id}`, { method: 'DELETE' });
    expect(await openKey(cluster)).toBeNull();
    expect(await api().clusters.runContext(uuidOf(cluster))).toBeNull();
    const [row] = await api().db.sql`select access_sealed from clusters where id = ${uuidOf(cluster)}`;
    expect(row).toEqual({ access_sealed: null });
  });
});

describe('a gateway without the platform key', () => {
  it('rejects creating clusters and rotating keys with a clear error, and serves everything else', async () => {
    const cluster = await makeCluster(api());
    expect(statSync(keyFile()).mode & 0o777).toBe(0o600);
    chmodSync(keyFile(), 0o644);
    const { id } = await api().organization();
    const body = { name: 'late', organization_id: id };
    for (const answer of [await api().ask('/v1/clusters', { body }), await rotate(cluster)]) {
      expect([answer.status, answer.body.error.code]).toEqual([503, 'SECRETS_UNAVAILABLE']);
      expect(answer.body.error.message).toMatch(/mode must be 0600/);
    }
    await expect(openKey(cluster)).rejects.toMatchObject({ code: 'secrets_unavailable' });
    const path = `/v1/clusters/${cluster.id}`;
    expect((await api().ask(path)).status).toBe(200);
    expect((await api().ask(`${path}/nodes`, { body: nodeBody('n-2') })).status).toBe(201);
    expect((await api().ask(`${path}/nodes/n-2/allocate`, { method: 'POST' })).status).toBe(200);
    expect((await api().ask(path, { method: 'DELETE' })).status).toBe(204);
    chmodSync(keyFile(), 0o600);
    expect((await api().ask('/v1/clusters', { body })).status).toBe(201);
  });

  it('leaves the data of the first gateway unchanged on a gateway with another data folder', async () => {
    const cluster = await makeCluster(api());
    const dataDir = mkdtempSync(join(tmpdir(), 'hg-other-'));
    try {
      const other = api().secondRooms({ dataDir });
      await expect(other.clusters.openPrivateKey(uuidOf(cluster))).rejects.toThrow(
        cluster.access_identity.encrypted_with,
      );
      expect(await other.clusters.reseal()).toBe(0);
      expect(await openKey(cluster)).toContain('PRIVATE KEY');
    } finally {
      rmSync(dataDir, { recursive: true });
    }
  });
});

describe('a new platform key', () => {
  it('re-encrypts all identities and makes the old key unnecessary', async () => {
    const clusters = [await makeCluster(api()), await makeCluster(api()), await makeCluster(api())];
    const keys = await Promise.all(clusters.map(openKey));
    const old = readFileSync(keyFile(), 'utf8');
    const fresh = `${randomBytes(32).toString('base64')}\n`;
    writeFileSync(keyFile(), `${fresh}${old}`);
    const [many, none] = await Promise.all([api().clusters.reseal(), api().secondRooms().clusters.reseal()]);
    expect(many + none).toBeGreaterThanOrEqual(clusters.length);
    expect(await api().clusters.reseal()).toBe(0);
    writeFileSync(keyFile(), fresh);
    expect(await Promise.all(clusters.map(openKey))).toEqual(keys);
    const { body } = await api().ask(`/v1/clusters/${clusters[0].id}`);
    expect(body.access_identity.encrypted_with).not.toBe(clusters[0].access_identity.encrypted_with);
    expect({ ...body.access_identity, encrypted_with: '' }).toEqual({
      ...clusters[0].access_identity,
      encrypted_with: '',
    });
  });
});

describe("a cluster's context for a run", () => {
  it('has the nodes in order, and no secret', async () => {
    const nodes = [nodeBody('b', { address: '10.0.0.2' }), nodeBody('a', { address: '2001:db8::1', gpus: 0 })];
    const cluster = await makeCluster(api(), { public_domain: 'c.example.com', nodes });
    const [{ id: first }, { id: second }] = cluster.nodes;
    const renamed = { method: 'PATCH', body: { name: 'c' } };
    // A new name is reported, under the id that the node has had all the time.
    expect((await api().ask(`/v1/clusters/${cluster.id}/nodes/a`, renamed)).status).toBe(200);
    expect(await api().clusters.runContext(uuidOf(cluster))).toEqual({
      cluster_id: cluster.id,
      cluster_name: cluster.name,
      public_domain: 'c.example.com',
      nodes: [
        { ...nodes[0], id: first, host_key: hostKey, role: 'head' },
        { ...nodes[1], id: second, name: 'c', host_key: hostKey, role: 'worker' },
      ],
      node_addresses: ['10.0.0.2', '2001:db8::1'],
      ssh_user: 'ops',
    });
  });
});
