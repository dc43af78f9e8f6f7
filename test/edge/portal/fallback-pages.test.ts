import { beforeAll, expect, it } from 'vitest';
import { type Body, externalFile, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { runCli } from '#test/cli/run-cli.ts';
import { signInVisitor, type Visitor } from '#test/portal/visitor.ts';

const bench = useInference(() => ({
  engines: {
    gone: externalFile('gone', 'http://127.0.0.1:1', { lines: ['fallbacks: [chat]'] }),
    chat: standinFile('chat'),
  },
}));
let admin: Visitor;
let record: Body;

beforeAll(async () => {
  admin = await signInVisitor(bench.gateway);
  const headers = { 'x-headgate-allow-fallback': 'true' };
  const answer = await bench.chat({ model: 'gone' }, { headers });
  await answer.text();
  record = await bench.recordOf(answer);
});

const textOf = async (path: string): Promise<string> =>
  (await admin.get(path)).text.replace(/<[^>]*>/g, ' ').replace(/\s+/g, ' ');

it('shows the requested model in the request list and on the page of a request', async () => {
  expect(record).toMatchObject({ model: 'chat', fallback_for: 'gone' });
  expect(await textOf('/portal/usage')).toContain('chat in place of gone');
  const why = await textOf(`/portal/usage/${record.id}`);
  expect(why).toContain('in place of gone');
  expect(why).toContain('Requested model gone (unavailable; the request allowed a fallback)');
});

it('shows the fallback models on the page of a model', async () => {
  expect(await textOf('/portal/models/gone')).toContain(
    'are answered by chat , at the price of the model that answers.',
  );
  expect(await textOf('/portal/models/chat')).not.toContain('at the price of the model that answers');
});

const cli = (...args: readonly string[]) =>
  runCli(args, { env: { HEADGATE_URL: bench.gateway.url, HEADGATE_API_KEY: bench.gateway.key } });

it('lets headgate chat use a fallback with --allow-fallback only, and prints its name', async () => {
  const refused = await cli('chat', '-m', 'gone', 'Hello');
  expect(refused).toMatchObject({ code: 1, stdout: '' });
  const answered = await cli('chat', '-m', 'gone', '--allow-fallback', '--max-tokens', '8', 'Hello');
  expect(answered.code).toBe(0);
  expect(answered.stdout).not.toBe('');
  expect(answered.stderr).toMatch(/\bchat: \d+ tokens? in/);
});

it('prints the requested model in headgate usage requests', async () => {
  const { code, stdout } = await cli('usage', 'requests');
  expect(code).toBe(0);
  expect(stdout).toMatch(/ chat +200 .*fallback for gone/);
  const { stdout: models } = await cli('models', '--json');
  expect(JSON.parse(models).data.find(({ id }: Body) => id === 'gone').fallbacks).toEqual(['chat']);
});
