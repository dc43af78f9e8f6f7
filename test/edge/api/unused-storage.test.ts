import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { say } from '#test/cli/in-process.ts';
import { type Body, standinFile, useInference } from '#test/inference/inference-gateway.ts';

/** Folders that engines have left in the cache of weights. */

const home = mkdtempSync(join(tmpdir(), 'hg-unused-'));
const other = mkdtempSync(join(tmpdir(), 'hg-unused-other-'));
afterAll(() => [home, other].forEach((folder) => rmSync(folder, { recursive: true, force: true })));

const inCache = (name: string): string => join(home, 'hub', name);

function addRepository(folder: string, extra: string | null = null): void {
  for (const part of ['blobs', 'refs', 'snapshots']) mkdirSync(join(folder, part), { recursive: true });
  writeFileSync(join(folder, 'blobs', '0123'), Buffer.alloc(2 ** 20, 1));
  if (extra !== null) writeFileSync(join(folder, extra), '');
}

const bench = useInference(() => {
  addRepository(inCache('models--acme--old'));
  addRepository(inCache('models--acme--older'));
  addRepository(inCache('models--test--chat'));
  addRepository(inCache('models--Acme--Draft'));
  addRepository(inCache('models--acme--variable'));
  addRepository(inCache('models--acme--mine'), 'notes.txt');
  addRepository(inCache('datasets--acme--data'));
  addRepository(join(other, 'models--acme--linked'));
  symlinkSync(join(other, 'models--acme--linked'), inCache('models--acme--linked'));
  addRepository(join(other, 'models--acme--downloaded'));
  return {
    engines: {
      chat: standinFile('chat', { lines: ['env: { MODEL: "${MODEL_OF_CHAT}" }'] }),
      drafted: standinFile('drafted', {
        lines: ['enabled: false'],
        flags: ['--speculative-config', '{"model": "acme/draft"}', '--download-dir', other],
      }),
    },
    env: { HF_HOME: home, MODEL_OF_CHAT: 'acme/variable' },
  };
});

const path = '/v1/admin/unused-storage';
const read = async (from: string): Promise<Body> => (await bench.gateway.request(from)).json();
const names = async (): Promise<string[]> => {
  const { data } = await read(path);
  return data.map(({ name }: { name: string }) => name).toSorted();
};

describe('weights in the cache of the machine', () => {
  it('are unused if no engine file names them, not even a disabled one', async () => {
    const { data } = await read(path);
    expect(data).toContainEqual({
      object: 'unused_item',
      type: 'weights',
      name: 'acme/old',
      host: 'local',
      bytes: 2 ** 20,
    });
    // The linked repository is a folder of another program until its own cache is listed.
    expect(await names()).toEqual(['acme/downloaded', 'acme/linked', 'acme/old', 'acme/older']);
    expect(data.filter(({ name }: { name: string }) => name === 'acme/linked')).toHaveLength(1);
  });

  it.each(['acme/draft', 'acme/variable', 'test/chat', 'acme/mine', 'acme/data', 'nothing', '../old'])(
    'are not deleted if they are named or unknown: %s',
    async (name) => {
      const answer = await bench.gateway.request(`${path}/${encodeURIComponent(name)}`, { method: 'DELETE' });
      expect(answer.status).toBe(404);
    },
  );

  it('are deleted by their name, with a row in the audit log', async () => {
    const answer = await bench.gateway.request(`${path}/${encodeURIComponent('acme/older')}`, { method: 'DELETE' });
    expect(answer.status).toBe(200);
    expect(existsSync(inCache('models--acme--older'))).toBe(false);
    expect(await names()).not.toContain('acme/older');
    const { data } = await read('/v1/audit');
    expect(data[0]).toMatchObject({ action: 'storage.deleted' });
  });

  it('are listed and deleted by the command, which asks first', async () => {
    const listed = await say(['engines', 'prune'], bench.gateway);
    expect(listed.stdout).toMatch(/^weights\s+acme\/old\s+local\s+0\.0$/m);
    const unsure = await say(['engines', 'prune', 'acme/old'], bench.gateway);
    expect(unsure.code).toBe(2);
    expect(existsSync(inCache('models--acme--old'))).toBe(true);
    expect((await say(['engines', 'prune', 'test/chat', '--yes'], bench.gateway)).stderr).toContain('is not unused');
    const done = await say(['engines', 'prune', 'acme/old', '--yes'], bench.gateway);
    expect(done.stdout).toBe('weights acme/old on local: deleted\n');
    expect(existsSync(inCache('models--acme--old'))).toBe(false);
    expect(existsSync(inCache('models--test--chat'))).toBe(true);
    expect(existsSync(inCache('models--acme--mine'))).toBe(true);
  });
});
