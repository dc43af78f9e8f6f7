import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { unpack } from '#core/stacks/package/package.ts';
import { say } from '#test/cli/in-process.ts';
import type { Body } from '#test/inference/inference-gateway.ts';
import { givenKey } from '#test/programs/gateway-process.ts';
import { useSites } from '#test/terraform/run-gateway.ts';

/** Older versions of a stack that are applied and come back, with real Terraform. */

const newSite = useSites();

const first = `
  variable "word" { type = string }
  resource "terraform_data" "old" { input = "first \${var.word}" }
  output "said" { value = terraform_data.old.output }`;
const second = `
  variable "size" {
    type    = number
    default = 2
  }
  resource "terraform_data" "new" { input = "second \${var.size}" }
  output "said" { value = terraform_data.new.output }`;

/** Returns the output of a package that Terraform itself applies. */
async function ofTerraform(zip: Buffer, variable: string): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), 'headgate-version-'));
  try {
    for (const { path, bytes } of await unpack(zip)) writeFileSync(join(folder, path), bytes);
    const terraform = (...args: string[]): string =>
      execFileSync('terraform', args, { cwd: folder, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] });
    terraform('init');
    terraform('apply', '-auto-approve', `-var=${variable}`);
    return JSON.parse(terraform('output', '-json')).said.value;
  } finally {
    rmSync(folder, { recursive: true });
  }
}

it('applies an older version with its inputs, and keeps it while its run may be destroyed', async () => {
  const { gateway, cluster } = await newSite();
  await gateway.upload('versions', first);
  await gateway.upload('versions', second);
  const apply = (body: object) =>
    gateway.ask('/v1/stacks/versions/apply', { body: { cluster_id: cluster.id, ...body } });
  const headgate = (...args: string[]) => say(args, { url: gateway.url, key: givenKey });
  const download = async (number: number): Promise<Buffer> => {
    const url = new URL(`/v1/stacks/versions/download?version=${number}`, gateway.url);
    return Buffer.from(await (await fetch(url, { headers: { authorization: `Bearer ${givenKey}` } })).arrayBuffer());
  };

  const newest = (await apply({})).body;
  expect(await gateway.becomes(newest.id, 'APPLIED')).toMatchObject({
    stack_version: 2,
    outputs: { said: { value: await ofTerraform(await download(2), 'size=2') } },
  });
  const wrong = await apply({ stack_version: 1, inputs: { size: 2 } });
  expect(wrong.body.error.details.map(({ field }: Body) => field).toSorted()).toEqual(['inputs.size', 'inputs.word']);
  expect((await apply({ stack_version: 3 })).status).toBe(404);

  const words = ['stacks', 'apply', 'versions', '--cluster', cluster.id, '--stack-version', '1'];
  const told = await headgate(...words, '--input', 'word=hello', '--wait');
  expect(told.stdout).toContain('1 added, 0 changed, 1 removed');
  const older = await gateway.run(/run_[0-9a-f]{32}/.exec(told.stdout)?.[0] ?? '');
  expect(older).toMatchObject({
    status: 'APPLIED',
    stack_version: 1,
    outputs: { said: { value: await ofTerraform(await download(1), 'word=hello') } },
  });

  for (let size = 3; size < 10; size += 1) await gateway.upload('versions', second.replace('= 2', `= ${size}`));
  const { data } = (await gateway.ask('/v1/stacks/versions/versions')).body;
  expect(data.map((one: Body) => [one.number, one.in_use])).toEqual([
    [9, false],
    [8, false],
    [7, false],
    [6, false],
    [5, false],
    [2, true],
    [1, true],
  ]);
  expect((await headgate('stacks', 'revert', 'versions', '--to', '1')).stdout).toBe('versions: reverted; version 10\n');
  expect((await download(10)).equals(await download(1))).toBe(true);
  const again = (await apply({ inputs: { word: 'hello' }, plan_only: true })).body;
  expect(await gateway.becomes(again.id, 'PLANNED_AND_FINISHED')).toMatchObject({
    stack_version: 10,
    plan: { add: 0, change: 0, remove: 0 },
  });
  const destroy = await gateway.made(`/v1/runs/${older.id}/destroy`);
  expect(await gateway.becomes(destroy.id, 'DESTROYED')).toMatchObject({ stack_version: 1, changes: { remove: 1 } });
});
