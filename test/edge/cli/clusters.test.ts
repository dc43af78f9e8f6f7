import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { formatId, uuidv7 } from '#base/id.ts';
import { makeKeyPair } from '#core/clusters/ssh-keys.ts';
import { makeCluster, newName, nodeBody } from '../api/cluster-support.ts';
import { useApi } from '../api/test-api.ts';
import { type CliOptions, runCli, useFolders } from './run-cli.ts';

const api = useApi();
const folders = useFolders();
const headgate = (args: readonly string[], options: CliOptions = {}) =>
  runCli(args, { ...options, env: { HEADGATE_URL: api().url, HEADGATE_API_KEY: api().admin, ...options.env } });
let organization = { id: '', key: '' };
beforeAll(async () => {
  organization = await api().organization();
});

describe('headgate clusters, refused', () => {
  it.each([
    [['create', 'x'], '--org is missing'],
    [['create', 'x', '--org', 'org_1', '--nodes', '/nowhere.yaml'], '/nowhere.yaml cannot be read (ENOENT)'],
    [['create', 'x', '--org', 'org_1', '--private-key', '/nowhere'], '/nowhere cannot be read (ENOENT)'],
    [['show'], 'a word is missing'],
    [['rm', 'a', 'b'], 'too many words'],
  ])('%j before anything is asked', async (args, sentence) => {
    const result = await headgate(['clusters', ...args]);
    expect(result).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining(sentence) });
  });

  it('by files that hold no nodes', async () => {
    const file = join(folders(), 'nodes.yaml');
    for (const [content, sentence] of [
      ['name: a', 'must hold a list of nodes'],
      ['[', 'is no YAML'],
    ] as const) {
      writeFileSync(file, content);
      const result = await headgate(['clusters', 'create', 'x', '--org', organization.id, '--nodes', file]);
      expect(result).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining(sentence) });
    }
  });

  it('by the gateway, in its words', async () => {
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
      stderr: expect.stringContaining('a management key of a platform admin'),
    });
  });
});

describe('headgate clusters', () => {
  it('makes one with its nodes and a key, shows it, lists it and ends it', async () => {
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
    expect((await headgate(['clusters', 'show', id])).stdout).toContain(`name: ${name}\n`);
    const line = new RegExp(`^${id} +${name} +${organization.id} +active +0/2 +cli\\.example\\.com$`, 'm');
    expect((await headgate(['clusters', 'ls'])).stdout).toMatch(line);
    expect(await headgate(['clusters', 'rm', id])).toMatchObject({ code: 0, stdout: `${id}: archived\n` });
    expect((await headgate(['clusters', 'ls'])).stdout).not.toContain(id);
    expect((await headgate(['clusters', 'ls', '--status', 'archived', '--org', organization.id])).stdout).toContain(id);
  });

  it('lists what is on further pages too', async () => {
    const { id } = await api().organization();
    for (let index = 0; index < 101; index += 1) await makeCluster(api(), { organization_id: id, nodes: [] });
    const { stdout } = await headgate(['clusters', 'ls', '--org', id, '--json']);
    expect(JSON.parse(stdout).data).toHaveLength(101);
  });
});
