import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { formatId, uuidv7 } from '#base/id.ts';
import { makeKeyPair } from '#core/clusters/ssh-keys.ts';
import { makeCluster, newName, nodeBody } from '#test/api/cluster-support.ts';
import { useApi } from '#test/api/test-api.ts';
import { type CliOptions, runCli, useFolders } from '#test/cli/run-cli.ts';

const api = useApi();
const folders = useFolders();
const headgate = (args: readonly string[], options: CliOptions = {}) =>
  runCli(args, { ...options, env: { HEADGATE_URL: api().url, HEADGATE_API_KEY: api().admin, ...options.env } });
let organization = { id: '', key: '' };
beforeAll(async () => {
  organization = await api().organization();
});

describe('a rejected headgate clusters command', () => {
  it.each([
    [['create', 'x'], '--org is missing'],
    [['create', 'x', '--org', 'org_1', '--nodes', '/nowhere.yaml'], 'there is no file /nowhere.yaml'],
    [['create', 'x', '--org', 'org_1', '--private-key', '/nowhere'], 'there is no file /nowhere'],
    [['show'], 'an argument is missing'],
    [['rm', 'a', 'b'], 'too many arguments'],
  ])('ends with code 2 before any request: %j', async (args, sentence) => {
    const result = await headgate(['clusters', ...args]);
    expect(result).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining(sentence) });
  });

  it('names a file that contains no list of nodes', async () => {
    const file = join(folders(), 'nodes.yaml');
    for (const [content, sentence] of [
      ['name: a', 'must contain a list of nodes'],
      ['[', 'is not valid YAML'],
    ] as const) {
      writeFileSync(file, content);
      const result = await headgate(['clusters', 'create', 'x', '--org', organization.id, '--nodes', file]);
      expect(result).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining(sentence) });
    }
  });

  it("shows the gateway's error", async () => {
    const absent = formatId('cluster', uuidv7());
    for (const command of ['show', 'rm']) {
      expect(await headgate(['clusters', command, absent])).toMatchObject({
        code: 1,
        stdout: '',
        stderr: expect.stringContaining(
          'There is no such cluster; "headgate clusters ls" lists the clusters\n  request ',
        ),
      });
    }
    expect(await headgate(['clusters', 'create', 'Not A Name', '--org', organization.id])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('name: must be 1 to 63 of a-z'),
    });
    const env = { HEADGATE_API_KEY: organization.key };
    expect(await headgate(['clusters', 'create', 'mine', '--org', organization.id], { env })).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(
        'This route requires a management key of a platform administrator; the key in HEADGATE_API_KEY is not one',
      ),
    });
  });
});

describe('headgate clusters', () => {
  it('creates a cluster with nodes and a key, shows, lists and deletes it', async () => {
    const [folder, name] = [folders(), newName()];
    const { privateKey, publicKey } = makeKeyPair('mine');
    writeFileSync(join(folder, 'id'), privateKey);
    writeFileSync(join(folder, 'nodes.yaml'), JSON.stringify([nodeBody('n-1'), nodeBody('n-2')]));
    const files = ['--nodes', join(folder, 'nodes.yaml'), '--private-key', join(folder, 'id')];
    const options = ['--org', organization.id, '--domain', 'cli.example.com', ...files];
    const made = await headgate(['clusters', 'create', name, ...options]);
    expect(made).toMatchObject({ code: 0, stderr: '', stdout: expect.stringContaining(`\n${publicKey} headgate `) });
    const [id = ''] = made.stdout.split(':');
    const shown = await headgate(['clusters', 'show', id, '--json']);
    expect(JSON.parse(shown.stdout)).toEqual((await api().ask(`/v1/clusters/${id}`)).body);
    const text = (await headgate(['clusters', 'show', id])).stdout;
    expect(text).toContain(`name: ${name}\n`);
    // As it is copied into authorized_keys: in one line.
    expect(text).toContain(`public_key: ${publicKey} headgate ${id}\n`);
    const line = new RegExp(`^${id} +${name} +${organization.id} +active +0/2 +cli\\.example\\.com$`, 'm');
    expect((await headgate(['clusters', 'ls'])).stdout).toMatch(line);
    expect((await headgate(['clusters', 'show', name, '--json'])).stdout).toBe(shown.stdout);
    // The command names the parts that end, also where nobody can be asked.
    expect(await headgate(['clusters', 'rm', name])).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringContaining(
        `Archive the cluster "${name}" (${id})? All of its 2 nodes (0 allocated) are released and no longer metered.`,
      ),
    });
    expect((await headgate(['clusters', 'ls'])).stdout).toContain(id);
    expect(await headgate(['clusters', 'rm', name, '--yes'])).toMatchObject({ code: 0, stdout: `${id}: archived\n` });
    expect((await headgate(['clusters', 'show', name])).stderr).toContain(`there is no cluster ${name}`);
    expect((await headgate(['clusters', 'ls'])).stdout).not.toContain(id);
    expect((await headgate(['clusters', 'ls', '--status', 'archived', '--org', organization.id])).stdout).toContain(id);
  });

  it('starts and ends the hours of a node, which appear in the costs', async () => {
    const name = newName();
    const { id } = await makeCluster(api(), { name, organization_id: organization.id, nodes: [nodeBody('n-1')] });
    const from = '2026-03-01T10:00:00.000Z';
    expect(await headgate(['clusters', 'allocate', name, 'n-1', '--at', 'yesterday'])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('at: must be an RFC 3339 time'),
    });
    expect((await headgate(['clusters', 'allocate', name, 'n-9'])).stderr).toContain('There is no such node');
    expect(await headgate(['clusters', 'allocate', name, 'n-1', '--at', from])).toMatchObject({
      code: 0,
      stdout: `n-1: allocated; metered from ${from}\n`,
    });
    const to = '2026-03-01T12:00:00.000Z';
    expect(await headgate(['clusters', 'release', name, 'n-1', '--at', to])).toMatchObject({
      code: 0,
      stdout: `n-1: released; metered from ${from} to ${to}\n`,
    });
    const { stdout } = await headgate(['costs', '--month', '2026-03', '--org', organization.id, '--json']);
    const [{ clusters }] = JSON.parse(stdout).organizations;
    const found = clusters.find((one: { id: string }) => one.id === id);
    expect(found.line_items.map((item: { node_hours: string }) => Number(item.node_hours))).toEqual([2]);
  });

  it('amends, lists and voids an allocation', async () => {
    const name = newName();
    await makeCluster(api(), { name, organization_id: organization.id, nodes: [nodeBody('n-1')] });
    const [wrong, from, to] = ['2015-03-01T10:00:00.000Z', '2026-03-01T10:00:00.000Z', '2026-03-01T12:00:00.000Z'];
    await headgate(['clusters', 'allocate', name, 'n-1', '--at', wrong]);
    const repeated = await headgate(['clusters', 'allocate', name, 'n-1', '--at', from]);
    expect(repeated).toMatchObject({ code: 1, stderr: expect.stringContaining(`recorded from ${wrong} until now`) });
    const amend = ['clusters', 'amend', name, 'n-1', '1', '--from', from, '--to', to, '--reason', 'wrong year'];
    expect((await headgate(amend)).stderr).toContain('This changes costs from');
    expect(await headgate([...amend, '--retroactive'])).toMatchObject({
      code: 0,
      stdout: `n-1: allocation 1 amended; ${from} to ${to}\n`,
    });
    const listed = (await headgate(['clusters', 'allocations', name, '--node', 'n-1'])).stdout;
    expect(listed).toMatch(new RegExp(`n-1 +1 +amended +${from} +${to} +was ${wrong} to now: wrong year`));
    const open = [...amend.slice(0, 5), '--to', 'none', '--reason', 'still there', '--retroactive'];
    expect((await headgate(open)).stdout).toBe(`n-1: allocation 1 amended; ${from} to now\n`);
    const end = ['clusters', 'void', name, 'n-1', '1', '--reason', 'not ours', '--retroactive'];
    expect(await headgate(end)).toMatchObject({ code: 2, stdout: '' });
    expect((await headgate([...end, '--yes'])).stdout).toBe(`n-1: allocation 1 voided; was ${from} to now\n`);
  });

  it('adds, changes and removes a node, and sets labels of the node and of its cluster', async () => {
    const name = newName();
    const { id } = await makeCluster(api(), { name, organization_id: organization.id, nodes: [] });
    const keyFile = join(folders(), 'host.pub');
    writeFileSync(keyFile, `${makeKeyPair('host').publicKey} root@n-1\n`);
    const fields = ['--address', '10.0.0.8', '--profile', 'a100', '--gpus', '4', '--host-key', keyFile];
    const added = await headgate(['clusters', 'add-node', name, 'n-1', ...fields, '--label', 'pool=a']);
    expect(added).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^node_\w+: n-1, a100, 4 GPUs, labels pool=a\n$/),
    });
    const edited = await headgate(['clusters', 'edit-node', name, 'n-1', '--name', 'n-2', '--port', '2222']);
    expect(edited.stdout).toContain(': n-2, a100');
    expect((await headgate(['clusters', 'label', name, 'team=ml', 'env=prod'])).stdout).toContain(
      'labels env=prod,team=ml',
    );
    expect((await headgate(['clusters', 'label', name, 'env-'])).stdout).toContain('labels team=ml');
    expect((await headgate(['clusters', 'label', name, 'n-2', 'pool-', 'x=y'])).stdout).toContain('labels x=y');
    const { labels, nodes } = (await api().ask(`/v1/clusters/${id}`)).body;
    expect([labels, nodes[0].labels, nodes[0].ssh_port, nodes[0].name]).toEqual([
      { team: 'ml' },
      { x: 'y' },
      2222,
      'n-2',
    ]);
    expect(await headgate(['clusters', 'rm-node', name, 'n-2'])).toMatchObject({ code: 2, stdout: '' });
    expect(await headgate(['clusters', 'rm-node', name, 'n-2', '--yes'])).toMatchObject({
      code: 0,
      stdout: 'n-2: removed\n',
    });
    expect((await api().ask(`/v1/clusters/${id}`)).body.nodes).toEqual([]);
  });

  it.each([
    [['add-node', 'x', 'n', '--profile', 'a'], '--address is missing'],
    [['add-node', 'x', 'n', '--address', 'a', '--profile', 'b', '--gpus', 'two'], '--gpus must be a whole number'],
    [['edit-node', 'x', 'n'], 'give the options of the node to change'],
    [['amend', 'x', 'n', '1', '--from', 'a'], '--reason is missing'],
    [['amend', 'x', 'n', '1', '--reason', 'a'], 'give --from, --to or both'],
    [['void', 'x', 'n', 'first', '--reason', 'a'], 'must be its number'],
    [['label', 'x', 'n-1'], 'give labels'],
    [['label', 'x', 'team=a', 'oops'], 'oops is no label'],
  ])('rejects %j before any request', async (args, sentence) => {
    expect(await headgate(['clusters', ...args])).toMatchObject({ code: 2, stderr: expect.stringContaining(sentence) });
  });

  it('accepts the name of one cluster, and lists the ids when several have the name', async () => {
    const [name, other] = [newName(), await api().organization()];
    const ids: string[] = [];
    for (const { id } of [organization, other]) {
      ids.push((await makeCluster(api(), { name, organization_id: id, nodes: [] })).id);
    }
    const { code, stderr } = await headgate(['clusters', 'rm', name, '--yes']);
    expect(code).toBe(1);
    for (const id of ids) expect(stderr).toContain(id);
    // Within its organization it is one.
    const env = { HEADGATE_API_KEY: other.key };
    expect((await headgate(['clusters', 'show', name], { env })).stdout).toContain(`id: ${ids[1]}\n`);
  });

  it('lists clusters of all pages', async () => {
    const { id } = await api().organization();
    for (let index = 0; index < 101; index += 1) await makeCluster(api(), { organization_id: id, nodes: [] });
    const { stdout } = await headgate(['clusters', 'ls', '--org', id, '--json']);
    expect(JSON.parse(stdout).data).toHaveLength(101);
  });
});
