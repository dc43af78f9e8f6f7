import { chmodSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { formatId, uuidv7 } from '#base/id.ts';
import { packOf } from '#test/stacks/raw-zip.ts';
import { freePort } from '#test/free-port.ts';
import { type Body, openOrganization, useInference } from '#test/inference/inference-gateway.ts';
import { type CliOptions, type CliResult, runCli, useFolders } from '#test/cli/run-cli.ts';
import { useRunsFolder } from '#test/runs-folder.ts';

/** Over a gateway that applies stacks with real Terraform in bubblewrap. */

const newRunsFolder = useRunsFolder();
const bench = useInference(async () => {
  return {
    engines: {},
    env: { HEADGATE_RUNS_DIR: await newRunsFolder(), HEADGATE_WEB_PORT: String(await freePort()) },
  };
});
const folders = useFolders();

const module = `
  variable "word" { default = "hello" }
  variable "count_of" { type = number }
  variable "names" {
    type    = list(string)
    default = []
  }
  variable "password" {
    type      = string
    sensitive = true
    default   = ""
  }
  resource "terraform_data" "a" {
    input = "\${var.word} \${var.count_of + 1} \${join("+", var.names)}"
    provisioner "local-exec" { command = "echo said by the module; [ \${var.count_of} -ge 0 ] || exit 1; [ \${var.count_of} -lt 100 ] || sleep \${var.count_of}" }
  }
  output "said" { value = terraform_data.a.output }
  output "hidden" {
    value     = var.password
    sensitive = true
  }`;

let mine = { id: '', key: '' };
let clusterId = '';

const headgate = (args: readonly string[], options: CliOptions = {}): Promise<CliResult> =>
  runCli(args, { ...options, env: { HEADGATE_URL: bench.gateway.url, HEADGATE_API_KEY: mine.key, ...options.env } });
const ask = async (path: string, options: object = {}): Promise<Body> =>
  JSON.parse(await (await bench.gateway.request(path, options)).text());
const idIn = ({ stdout }: CliResult): string => /^(run_[0-9a-f]{32}): /.exec(stdout)?.[1] ?? stdout;

beforeAll(async () => {
  const { gateway } = bench;
  mine = await openOrganization(gateway, '5');
  const form = new FormData();
  form.append('file', new File([new Uint8Array(packOf({ 'main.tf': module }))], 'words.zip'));
  form.append('name', 'words');
  const headers = { authorization: `Bearer ${gateway.key}` };
  const pushed = await fetch(new URL('/v1/stacks', gateway.url), { method: 'POST', headers, body: form });
  if (pushed.status !== 201) throw new Error(await pushed.text());
  const nodes = [{ name: 'n-1', address: '10.9.8.7', hardware_profile: 'h100' }];
  clusterId = (await ask('/v1/clusters', { body: { name: 'site', organization_id: mine.id, nodes } })).id;
});

describe('a rejected headgate runs command', () => {
  it.each([
    [['runs', 'apply', 'words'], '--cluster is missing'],
    [['stacks', 'apply'], 'an argument is missing: headgate stacks apply STACK --cluster'],
    [['runs', 'apply', 'words', '--cluster', 'site', '--input', 'word'], '--input word: must be NAME=VALUE'],
    [['runs', 'apply', 'words', '--cluster', 'site', '--inputs', '/nowhere'], 'there is no file /nowhere'],
    [['runs', 'apply', 'words', '--cluster', 'site', '--input', 'count_of=many'], 'must be a number, such as 1'],
    [['runs', 'apply', 'words', '--cluster', 'site', '--input', 'names=a'], 'must be a list, such as ["a"]'],
    [['runs', 'logs', 'run_1', '--tail', 'x'], '--tail must be a number of lines'],
    [['runs', 'ls', '--limit', '0'], '--limit must be a number of runs'],
    [['runs', 'show'], 'an argument is missing'],
    [['runs', 'undo'], '"headgate runs" has no subcommand "undo"'],
  ])('exits with 2: %j', async (args, sentence) => {
    expect(await headgate(args)).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining(sentence) });
  });

  it('names an inputs file that is not an object', async () => {
    const file = join(folders(), 'inputs.json');
    for (const content of ['[1]', 'x']) {
      writeFileSync(file, content);
      const result = await headgate(['runs', 'apply', 'words', '--cluster', clusterId, '--inputs', file]);
      expect(result).toMatchObject({ code: 2, stderr: expect.stringContaining('must contain a JSON object') });
    }
  });

  it("shows the gateway's error and how to list runs", async () => {
    const absent = formatId('run', uuidv7());
    for (const command of ['show', 'logs', 'cancel', 'retry', 'destroy']) {
      expect(await headgate(['runs', command, absent])).toMatchObject({
        code: 1,
        stderr: expect.stringContaining('headgate: There is no such run; "headgate runs ls" lists the runs\n'),
      });
    }
    const noCluster = formatId('cluster', uuidv7());
    const applied = (stack: string, cluster: string) => headgate(['runs', 'apply', stack, '--cluster', cluster]);
    expect((await applied('words', noCluster)).stderr).toContain(
      'headgate: There is no such cluster; "headgate clusters ls" lists the clusters\n',
    );
    expect((await applied('verbs', clusterId)).stderr).toContain('"headgate stacks ls" lists the stacks');
    expect((await applied('words', 'nowhere')).stderr).toContain('there is no cluster nowhere');
    const wrong = await headgate(['runs', 'apply', 'words', '--cluster', 'site', '--input', 'colour=red']);
    expect(wrong).toMatchObject({ code: 1, stdout: '' });
    for (const field of ['inputs.colour: is not an input', 'inputs.count_of: is missing']) {
      expect(wrong.stderr).toContain(field);
    }
    expect(wrong.stderr).toContain('"headgate stacks show STACK" lists the inputs; set them with "--input NAME=VALUE"');
    const { secret } = await ask('/v1/keys', { body: { name: 'app', scope: 'inference' }, key: mine.key });
    const env = { HEADGATE_API_KEY: secret };
    expect((await headgate(['runs', 'apply', 'words', '--cluster', clusterId], { env })).stderr).toContain(
      'requires an API key with the scope "management"; the key in HEADGATE_API_KEY has scope "inference"',
    );
    expect((await headgate(['runs', 'ls', '--status', 'DONE'])).stderr).toContain('status');
  });
});

describe('headgate runs', () => {
  it('applies with inputs of a file and of the command line, waits, and shows the outputs', async () => {
    const file = join(folders(), 'inputs.json');
    writeFileSync(file, JSON.stringify({ word: 'from the file', count_of: 1, password: 'secret-12345' }));
    const inputs = ['--inputs', file, '--input', 'count_of=2', '--input', 'names=["a","b=c"]'];
    const applied = await headgate(['stacks', 'apply', 'words', '--cluster', 'site', '--wait', ...inputs]);
    const id = idIn(applied);
    expect(applied).toMatchObject({
      code: 0,
      stdout: `${id}: APPLIED; 1 added, 0 changed, 0 removed\nhidden = (sensitive)\nsaid = from the file 3 a+b=c\n`,
      stderr: expect.stringMatching(new RegExp(`^${id}: P(?:ENDING|LANNING)`)),
    });
    const answer = await ask(`/v1/runs/${id}`);
    expect(JSON.parse((await headgate(['runs', 'show', id, '--json'])).stdout)).toEqual(answer);
    expect((await headgate(['runs', 'show', id])).stdout).toContain('status: APPLIED\n');
    const line = new RegExp(
      `^${id} +words +1 +site +- +apply +APPLIED +\\+1 ~0 -0 +\\d{4}-\\d\\d-\\d\\d [\\d:]+ +-$`,
      'm',
    );
    expect((await headgate(['runs', 'ls', '--cluster', 'site', '--stack', 'words'])).stdout).toMatch(line);
    const listed = JSON.parse((await headgate(['runs', 'ls', '--cluster', 'site', '--json'])).stdout).data;
    expect(listed).toContainEqual(expect.objectContaining({ id, cluster_id: clusterId }));
    expect((await headgate(['runs', 'ls', '--status', 'FAILED'])).stdout).not.toContain(id);

    const lines: Body[] = (await ask(`/v1/runs/${id}/logs?limit=10000`)).data;
    const jsonLines = ({ stdout }: CliResult): Body[] =>
      stdout
        .trimEnd()
        .split('\n')
        .map((text) => JSON.parse(text));
    expect(jsonLines(await headgate(['runs', 'logs', id, '--json']))).toEqual(lines);
    expect(jsonLines(await headgate(['runs', 'logs', id, '-f', '--json', '--tail', '3']))).toEqual(lines.slice(-3));
    const printed = await headgate(['runs', 'logs', id, '-f']);
    expect(printed).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^\d\d:\d\d:\d\d apply said by the module$/m),
    });
    expect(printed.stderr).toContain(`${id}: APPLIED`);
    expect(printed.stdout).not.toContain('secret-12345');

    const destroyed = await headgate(['runs', 'destroy', id, '--wait', '--json', '--yes']);
    expect([destroyed.code, JSON.parse(destroyed.stdout).status]).toEqual([0, 'DESTROYED']);
    expect(destroyed.stderr).toBe('');
    const again = await headgate(['runs', 'destroy', idIn(applied), '--wait', '--yes']);
    expect(again).toMatchObject({ code: 0, stdout: expect.stringMatching(/^run_\w+: DESTROYED\n$/) });
  });

  it('exits with 1 and the reason when a run fails, and a retry fails the same way', async () => {
    const inputs = ['--input', 'count_of=1', '--input', 'names=[{"a":1}]'];
    const failed = await headgate(['runs', 'apply', 'words', '--cluster', clusterId, '--wait', ...inputs]);
    expect(failed).toMatchObject({ code: 1, stdout: expect.stringMatching(/^run_\w+: FAILED; PLAN_FAILED: .*names/) });
    const retried = await headgate(['runs', 'retry', idIn(failed), '--wait', '--json']);
    expect([retried.code, JSON.parse(retried.stdout).failure_code]).toEqual([1, 'PLAN_FAILED']);
    const forgotten = await headgate(['runs', 'forget', idIn(failed), '--yes']);
    expect([forgotten.code, forgotten.stderr]).toEqual([
      1,
      expect.stringContaining('the key in HEADGATE_API_KEY is not one'),
    ]);
    const env = { HEADGATE_API_KEY: bench.gateway.key };
    expect(await headgate(['runs', 'forget', idIn(failed), '--yes'], { env })).toMatchObject({ code: 0 });
  });

  it('shows for a failed run the changes that were made, not the planned ones, and the next steps', async () => {
    const cluster = ['--cluster', clusterId];
    const failed = await headgate(['runs', 'apply', 'words', ...cluster, '--wait', '--input', 'count_of=-1']);
    expect(failed.stdout).toMatch(/^run_\w+: FAILED; APPLY_FAILED: /);
    const { changes } = await ask(`/v1/runs/${idIn(failed)}`);
    expect(changes).toMatchObject({ operation: 'plan', add: 1 });
    expect(await headgate(['runs', 'destroy', idIn(failed)])).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringContaining(`All resources of the stack "words" on the cluster site are removed`),
    });
    const gone = await headgate(['runs', 'destroy', idIn(failed), '--wait', '--yes']);
    expect(gone.stdout).toContain(': DESTROYED');
    expect((await headgate(['runs', 'retry', idIn(gone)])).stderr).toContain(
      'The run is DESTROYED; its resources are destroyed: "headgate runs apply" creates them again\n  request ',
    );
    expect((await headgate(['runs', 'destroy', idIn(gone), '--yes'])).stderr).toContain(
      'it has no resources left to destroy',
    );
  });

  it('says which runs can be confirmed, changed and checked, and which have a plan', async () => {
    const failed = await headgate([
      'runs',
      'apply',
      'words',
      '--cluster',
      clusterId,
      '--wait',
      '--input',
      'count_of=-1',
    ]);
    const id = idIn(failed);
    expect(failed.stdout).toContain(`\nlog: headgate runs logs ${id}\n`);
    const errorOf = async (...words: readonly string[]): Promise<string> => (await headgate(['runs', ...words])).stderr;
    for (const command of ['confirm', 'discard']) {
      expect(await errorOf(command, id)).toContain('only a PLANNED run can be confirmed or discarded');
    }
    for (const words of [
      ['drift-check', id],
      ['drift-check', id, 'off'],
      ['expiry', id, '--in', '2h'],
    ]) {
      expect(await errorOf(...words)).toContain('only an APPLIED run has an expiry and drift checks');
    }
    expect(await errorOf('plan', id)).toMatch(/have one once it is ready\.\n {2}request /);
    expect(await errorOf('open', id)).toContain('if its cluster has a public domain and its stack names a port');
  });

  it('prints the web address at the end, and a link for members, opened in a browser on request', async () => {
    const form = new FormData();
    const page = 'output "web_port" { value = 8080 }';
    form.append('file', new File([new Uint8Array(packOf({ 'main.tf': page }))], 'page.zip'));
    const headers = { authorization: `Bearer ${bench.gateway.key}` };
    await fetch(new URL('/v1/stacks', bench.gateway.url), { method: 'POST', headers, body: form });
    const nodes = [{ name: 'n-1', address: '127.0.0.9', hardware_profile: 'h100' }];
    const body = { name: 'web', organization_id: mine.id, public_domain: 'apps.example.com', nodes };
    await ask('/v1/clusters', { body });
    const apply = ['runs', 'apply', 'page', '--cluster', 'web', '--wait'];
    expect((await headgate([...apply, '--access', 'nobody'])).stderr).toContain(
      '--access must be one of public, members',
    );
    const open = await headgate(apply);
    expect(open.stdout).toMatch(
      /^web address: https:\/\/page--web\.apps\.example\.com\/? \((?:not reachable yet|unreachable)\)$/m,
    );
    expect((await headgate(['runs', 'open', idIn(open)])).stdout).toMatch(
      /^https:\/\/page--web\.apps\.example\.com\S*\n$/,
    );

    const members = await headgate([...apply, '--access', 'members']);
    const id = idIn(members);
    expect(members.stdout).toContain(`; for members: headgate runs open ${id}\n`);
    expect((await headgate(['runs', 'logs', '-f', id])).stderr).toContain('web address: https://page--web.');
    const link = await headgate(['runs', 'open', id]);
    expect(link.stdout).toMatch(/^https:\/\/page--web\.apps\.example\.com\/\S*[\w-]{20}\S*\n$/);
    expect(link.stderr).toMatch(/^the link works once, until [\d:]+ UTC\n$/);

    const [bin, seen] = [folders(), join(folders(), 'seen')];
    writeFileSync(join(bin, 'xdg-open'), `#!/bin/sh\necho "$@" > ${seen}.new && mv ${seen}.new ${seen}\n`);
    chmodSync(join(bin, 'xdg-open'), 0o755);
    const env = { PATH: `${bin}:${process.env['PATH'] ?? ''}` };
    const opened = await headgate(['runs', 'open', id, '--browser'], { env });
    await expect.poll(() => existsSync(seen)).toBe(true);
    expect(readFileSync(seen, 'utf8')).toBe(opened.stdout);
    expect((await headgate(['runs', 'open', id, '--browser'], { env: { PATH: '/nonexistent' } })).stderr).toContain(
      'there is no xdg-open on this machine; open this address yourself: https://page--web',
    );
  });

  it('cancels a running run, and waits until it has ended', async () => {
    const started = await headgate(['runs', 'apply', 'words', '--cluster', clusterId, '--input', 'count_of=600']);
    expect(started).toMatchObject({ code: 0, stdout: expect.stringMatching(/^run_\w+: (?:PENDING|PLANNING)\n$/) });
    const followed = await headgate(['runs', 'logs', idIn(started), '-f'], {
      until: (stdout) => stdout.includes('said by the module'),
    });
    expect(followed.stdout).toContain('said by the module');
    const canceled = await headgate(['runs', 'cancel', idIn(started), '--wait']);
    expect(canceled).toMatchObject({ code: 0, stdout: expect.stringContaining(`${idIn(started)}: CANCELED`) });
    const twice = await headgate(['runs', 'cancel', idIn(started)]);
    expect(twice).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('The run is CANCELED; only a pending or active run'),
    });
  });
});
