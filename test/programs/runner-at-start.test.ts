import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { givenKey, useProcesses } from '#test/programs/gateway-process.ts';

/** Messages of a gateway about the program that applies stacks on its machine, and its checks of it. */

const processes = useProcesses();

/** A program that notes how it is called, and tells a version. */
function program(dir: string, version = '1.9.9'): { readonly path: string; calls: () => string[] } {
  const [path, notes] = [join(dir, 'terraform'), join(dir, 'calls')];
  writeFileSync(path, `#!/bin/sh\necho "$*" >>${notes}\necho 'Terraform v${version}'\necho 'on linux_amd64'\n`);
  chmodSync(path, 0o755);
  return { path, calls: () => (existsSync(notes) ? readFileSync(notes, 'utf8').trim().split('\n') : []) };
}

it('runs the configured program once, and logs its version and the limits of runs', async () => {
  const home = processes.home();
  const { path, calls } = program(home.dir);
  const env = { HEADGATE_TERRAFORM_BIN: path, HEADGATE_BOOTSTRAP_KEY: givenKey };
  const gateway = processes.run({ home, databaseUrl: await processes.database(), env });
  const url = await gateway.url();
  const [line] = await gateway.printed(/^.*stacks are applied on this machine: .*$/m);
  expect(line).toContain('bubblewrap; network: ');
  expect(line).toContain('Terraform 1.9.9');
  const listed = await fetch(new URL('/v1/runner', url), { headers: { authorization: `Bearer ${givenKey}` } });
  expect(listed.status).toBe(200);
  expect(calls()).toEqual(['version']);
});

it.each(['0.15.5', '1.3.10'])('applies no stacks with Terraform %s, and logs that it is too old', async (version) => {
  const home = processes.home();
  const { path } = program(home.dir, version);
  const env = { HEADGATE_TERRAFORM_BIN: path, HEADGATE_BOOTSTRAP_KEY: givenKey };
  const gateway = processes.run({ home, databaseUrl: await processes.database(), env });
  const url = await gateway.url();
  const problem = `terraform is Terraform ${version}; OpenTofu or Terraform 1.4 or later is required`;
  const [line] = await gateway.printed(/^.*this machine lists stacks but cannot apply them: .*$/m);
  expect(line).toContain(problem);
  const asked = await fetch(new URL('/v1/runner', url), { headers: { authorization: `Bearer ${givenKey}` } });
  expect(await asked.text()).toContain(problem);
});

it('runs no program until stacks are used, when no setting is about them', async () => {
  const home = processes.home();
  const env = { HEADGATE_BOOTSTRAP_KEY: givenKey };
  const gateway = processes.run({ home, databaseUrl: await processes.database(), env });
  const url = await gateway.url();
  const ready = await fetch(new URL('/healthz', url));
  expect(ready.status).toBe(200);
  expect(gateway.output.stdout).not.toMatch(/stacks are applied|lists stacks/);
  await fetch(new URL('/v1/runner', url), { headers: { authorization: `Bearer ${givenKey}` } });
  await gateway.printed(/(stacks are applied on this machine: |this machine lists stacks but cannot apply them: )/);
});
