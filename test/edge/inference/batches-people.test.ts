import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { say } from '#test/cli/in-process.ts';
import { signInVisitor, type Visitor } from '#test/portal/visitor.ts';
import { batchEnd, flexFile, line, linesOf, startBatch } from '#test/inference/batch-bench.ts';
import { eventually, type Body, useInference } from '#test/inference/inference-gateway.ts';

/** Batches for people: by the command, and on pages. */

const bench = useInference(() => ({ engines: { chat: flexFile('chat') } }));
const folder = mkdtempSync(join(tmpdir(), 'hg-batches-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const run = (...args: string[]) => say(args, { url: bench.gateway.url, key: bench.gateway.key });
const written = (name: string, text: string): string => {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
};
const idIn = (text: string, prefix: string): string => new RegExp(`${prefix}_[0-9a-f]{32}`).exec(text)?.[0] ?? '';

describe('the headgate CLI with batches', () => {
  it('reports wrong arguments before it sends anything, unknown batches, and an empty list', async () => {
    expect(await run('batches', 'create', join(folder, 'none'))).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('there is no file'),
    });
    expect(await run('files', 'ls', '--limit', 'many')).toMatchObject({ code: 2 });
    expect(await run('batches', 'show', 'batch_1')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('There is no such batch'),
    });
    expect(await run('batches', 'ls')).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('no batches; create one'),
    });
  });

  it('runs a local file and prints the answers', async () => {
    const path = written('in.jsonl', `${linesOf(3)}\n${line(3, { body: { max_tokens: -1 } })}`);
    const made = await run('batches', 'create', path);
    const id = idIn(made.stdout, 'batch');
    expect(made).toMatchObject({ code: 0, stdout: expect.stringContaining(`headgate batches show ${id}`) });
    await batchEnd(bench.gateway, id);
    expect((await run('batches', 'ls')).stdout).toMatch(new RegExp(`^${id} +completed +3 +1 +4 +chat +-$`, 'm'));
    expect((await run('batches', 'show', id)).stdout).toContain('status: completed');
    const output = await run('batches', 'output', id);
    expect(
      output.stdout
        .trimEnd()
        .split('\n')
        .map((one): Body => JSON.parse(one).custom_id),
    ).toEqual(['line-0', 'line-1', 'line-2']);
    const target = join(folder, 'errors.jsonl');
    expect(await run('batches', 'output', id, '--errors', '--out', target)).toMatchObject({ code: 0, stdout: '' });
    expect(JSON.parse(readFileSync(target, 'utf8'))).toMatchObject({
      custom_id: 'line-3',
      response: { status_code: 400 },
    });
    expect(await run('batches', 'output', id, '--out', target)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('already exists'),
    });
    expect(await run('batches', 'cancel', id)).toMatchObject({ code: 1 });
  });

  it('lists, uploads, prints and deletes files', async () => {
    const text = linesOf(2);
    const sent = await run('files', 'upload', written('two.jsonl', text));
    const id = idIn(sent.stdout, 'file');
    expect((await run('files', 'ls')).stdout).toMatch(
      new RegExp(`^${id} +${text.length} +batch +\\S+ \\S+ +two.jsonl$`, 'm'),
    );
    expect((await run('files', 'get', id)).stdout).toBe(text);
    const batch = await run('batches', 'create', id, '--json');
    expect(JSON.parse(batch.stdout)).toMatchObject({ object: 'batch', input_file_id: id });
    await batchEnd(bench.gateway, JSON.parse(batch.stdout).id);
    expect((await run('files', 'rm', id)).code).toBe(2);
    expect(await run('files', 'rm', id, '--yes')).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('deleted'),
    });
    expect((await run('files', 'get', id)).code).toBe(1);
  });
});

describe('the batch pages', () => {
  let visitor: Visitor;
  beforeAll(async () => {
    visitor = await signInVisitor(bench.gateway);
  });

  it('show the progress of a batch, cancel it, and serve its output', async () => {
    const slow = linesOf(9, { body: { max_tokens: 600, standin: { output_tokens: 600, tpot_ms: 1000 } } });
    const text = `${linesOf(2)}\n${slow.replaceAll('"line-', '"slow-')}`;
    const { id } = await startBatch(bench.gateway, text, { fields: { metadata: { run: '<b>nightly</b>' } } });
    const path = `/portal/batches/${id}`;
    await eventually(async () => (await visitor.get(path)).text.includes('2 of 11'));
    expect((await visitor.get('/portal/batches')).text).toContain(id);
    expect((await visitor.get(path)).text).toContain('&lt;b&gt;nightly&lt;/b&gt;');
    expect((await visitor.get(`${path}/output`)).status).toBe(404);
    expect(await visitor.post(`${path}/cancel`, {})).toMatchObject({ status: 303 });
    await batchEnd(bench.gateway, id);
    const ended = await visitor.get(path);
    expect(ended.text).toContain('cancelled');
    expect(ended.text).not.toContain('Cancel batch');
    const output = await visitor.get(`${path}/output`);
    expect(output.text.trimEnd().split('\n')).toHaveLength(2);
    expect((await visitor.get(`${path}/errors`)).text.trimEnd().split('\n')).toHaveLength(9);
    expect((await visitor.post(`${path}/cancel`, {})).status).toBe(303);
  });

  it('show the errors of invalid lines', async () => {
    const { id } = await startBatch(bench.gateway, `${line(0)}\nnonsense`);
    await batchEnd(bench.gateway, id);
    const { text } = await visitor.get(`/portal/batches/${id}`);
    expect(text).toContain('invalid_json_line');
    expect(text).toMatch(/aria-label="Errors"/);
  });
});
