import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Body } from '#test/inference/inference-gateway.ts';
import { useSites } from '#test/terraform/run-gateway.ts';

/** Values that Terraform makes of defaults and of given values: a run has the same as `terraform apply` in the folder. */

const newSite = useSites();

const defaults = `
  variable "escaped" { default = "echo $\${HOME} %%{h} $HOME" }
  variable "long" { default = 9007199254740993 }
  variable "sum" { default = 60 * 60 }
  variable "list" { default = ["$\${A}", "%%{B}"] }
  variable "map" { default = { "$\${A}" = "%%{B}" } }
  variable "heredoc" {
    default = <<-EOT
      a $\${A}
        b %%{B}
    EOT
  }
  variable "typed" {
    type    = object({ a = optional(number, 3), b = string })
    default = { b = 7 }
  }
  variable "nothing" { default = null }
  output "all" {
    value = jsonencode([var.escaped, tostring(var.long), var.sum, var.list, var.map, var.heredoc, var.typed, var.nothing])
  }
`;

const given = `
  variable "text" { type = string }
  variable "long" { type = number }
  variable "map" { type = map(string) }
  output "all" { value = jsonencode([var.text, tostring(var.long), var.map]) }
`;

const ephemeral = `
  variable "token" {
    type      = string
    ephemeral = true
  }
  variable "other" {
    default   = "as it was declared"
    ephemeral = true
  }
  resource "terraform_data" "a" {
    input = "made"
    provisioner "local-exec" {
      command     = "test -n \\"$TOKEN\\" && printf %s \\"$OTHER\\" > /dev/null"
      environment = { TOKEN = var.token, OTHER = var.other }
    }
  }
  output "all" { value = terraform_data.a.output }
`;

/** Applies a module in a folder of its own, as somebody does by hand. */
function applied(main: string, values: object): unknown {
  const folder = mkdtempSync(join(tmpdir(), 'hg-values-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  writeFileSync(join(folder, 'main.tf'), main);
  writeFileSync(join(folder, 'terraform.tfvars.json'), JSON.stringify(values));
  const terraform = (...args: string[]): void => {
    execFileSync('terraform', [`-chdir=${folder}`, ...args], { stdio: 'ignore' });
  };
  terraform('init', '-input=false');
  terraform('apply', '-auto-approve', '-input=false');
  const state: Body = JSON.parse(readFileSync(join(folder, 'terraform.tfstate'), 'utf8'));
  return state.outputs.all.value;
}

describe('the values of a run', () => {
  it.each([
    ['of the defaults of the module', 'defaults', defaults, {}],
    [
      'that are given',
      'given',
      given,
      { text: 'echo ${HOME} %{h}', long: '9007199254740993', map: { '${A}': '%{B}' } },
    ],
    ['of ephemeral variables', 'ephemeral', ephemeral, { token: 'a-token-of-some-length' }],
  ])('equal those of terraform apply: %s', async (_, stack, main, values) => {
    const { gateway, cluster } = await newSite();
    expect((await gateway.upload(stack, main)).status).toBe(201);
    const run = await gateway.apply(stack, cluster.id, values);
    await gateway.becomes(run.id, 'APPLIED');
    const { outputs } = await gateway.run(run.id);
    expect(outputs.all.value).toEqual(applied(main, values));
    const destroying = await gateway.made(`/v1/runs/${run.id}/destroy`);
    await gateway.becomes(destroying.id, 'DESTROYED');
  });
});

it('returns 400 for numbers that lost digits in JSON', async () => {
  const { gateway, cluster } = await newSite();
  await gateway.upload('numbers', given);
  const inputs = { text: 'x', long: 2 ** 53 + 2, map: {} };
  const answer = await gateway.ask('/v1/stacks/numbers/apply', { body: { cluster_id: cluster.id, inputs } });
  expect([answer.status, answer.body.error.details]).toEqual([
    400,
    [{ field: 'inputs.long', message: expect.stringContaining('send it as a string') }],
  ]);
});

describe('a required_version', () => {
  const version = /v(\S+)/.exec(execFileSync('terraform', ['version'], { encoding: 'utf8' }))?.[1] ?? '';
  const [major = '', minor = '', patch = ''] = version.split('.');

  it('is accepted on upload if terraform init accepts it', async () => {
    const { gateway } = await newSite();
    const folder = mkdtempSync(join(tmpdir(), 'hg-required-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const constraints = [
      '>= 99.0',
      '>= 1.0, < 99.0',
      `= ${version}`,
      version,
      `!= ${version}`,
      `~> ${major}.0`,
      `~> ${major}.${minor}.0`,
      `~> ${major}`,
      `~> ${major}.${Number(minor) + 1}`,
      `~> ${major}.${minor}.${Number(patch) + 1}`,
      `< ${major}.${minor}`,
      `<= ${major}.${minor}.${patch}`,
      `> ${version}`,
      '>= 1.0, >= 98',
    ];
    for (const constraint of constraints) {
      const main = `terraform {\n  required_version = "${constraint}"\n}\n`;
      writeFileSync(join(folder, 'main.tf'), main);
      const isAllowed = spawnSync('terraform', [`-chdir=${folder}`, 'init', '-input=false']).status === 0;
      const { status, body } = await gateway.upload('versions', main);
      expect([constraint, status < 300], JSON.stringify(body)).toEqual([constraint, isAllowed]);
      expect(JSON.stringify(body).includes(JSON.stringify(`is "${constraint}"`).slice(1, -1))).toBe(!isAllowed);
    }
  });
});
