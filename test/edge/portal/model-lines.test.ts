import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it } from 'vitest';
import { repository } from '#test/cli/run-cli.ts';
import { standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { type Shown, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** Texts on the pages of models, and the lines that they hand out: those work as they stand. */

const run = promisify(execFile);
const bench = useInference(() => ({
  engines: {
    chat: standinFile('chat'),
    odd: standinFile('acme/odd'),
    vectors: standinFile('vectors', { taskType: 'embedding' }),
    rank: standinFile('rank', { taskType: 'rerank', flags: ['--runner', 'pooling', '--convert', 'classify'] }),
    plain: standinFile('plain', { taskType: 'completion' }),
    slow: standinFile('slow', { lines: ['start_timeout_seconds: 40'] }),
  },
}));
let admin: Visitor;

beforeAll(async () => {
  admin = await signInVisitor(bench.gateway);
});

/** The text of a snippet of a page. */
function snippet({ text }: Shown, id: string): string {
  const shown = new RegExp(`<pre id="snippet-${id}"[^>]*>([^]*?)</pre>`).exec(text)?.[1] ?? '';
  const marks = { '&lt;': '<', '&gt;': '>', '&quot;': '"', '&#39;': "'" };
  return Object.entries(marks)
    .reduce((said, [from, to]) => said.replaceAll(from, to), shown)
    .replaceAll('&amp;', '&');
}

const pageOf = (model: string): Promise<Shown> => admin.get(`/portal/models/${encodeURIComponent(model)}`);

/** With a key in HEADGATE_API_KEY, in a folder where the libraries are installed. */
async function paste(program: string, args: readonly string[]): Promise<string> {
  const { PATH = '' } = process.env;
  const env = { PATH, HEADGATE_API_KEY: bench.gateway.key };
  return (await run(program, args, { cwd: repository, env })).stdout;
}

const script = (text: string): Promise<string> => paste(process.execPath, ['--input-type=module', '-e', text]);

describe("the code samples of a model's page", () => {
  it.each([
    ['chat', 'choices'],
    ['acme/odd', 'choices'],
    ['plain', 'choices'],
    ['vectors', 'embedding'],
    ['rank', 'relevance_score'],
  ])('work with curl: %s', async (model, part) => {
    const shown = await pageOf(model);
    expect(shown.status).toBe(200);
    const said = await paste('bash', ['-c', `${snippet(shown, 'curl')} -sS`]);
    expect(said).toContain(part);
    expect(JSON.parse(said)).not.toHaveProperty('error');
  });

  it.each([
    ['chat', /This text comes/],
    ['acme/odd', /This text comes/],
    ['plain', /\S/],
    ['vectors', /^\d+\n$/],
    ['rank', /relevance_score/],
  ])("work with OpenAI's JavaScript library: %s", async (model, answer) => {
    expect(await script(snippet(await pageOf(model), 'javascript'))).toMatch(answer);
  });

  it('work with the AI SDK for a chat model, and are valid settings for coding agents', async () => {
    const shown = await pageOf('acme/odd');
    expect(await script(snippet(shown, 'ai-sdk'))).toContain('This text comes');
    const opencode = JSON.parse(snippet(shown, 'agents')) as {
      provider: { headgate: { options: object; models: object } };
    };
    expect(opencode.provider.headgate.options).toMatchObject({ baseURL: `${bench.gateway.url}/v1` });
    expect(Object.keys(opencode.provider.headgate.models)).toEqual(['acme/odd']);
    const pi = JSON.parse(snippet(shown, 'agents-pi')) as { providers: { headgate: { models: object[] } } };
    expect(pi.providers.headgate.models).toEqual([{ id: 'acme/odd' }]);
    const variables = await paste('bash', [
      '-c',
      `${snippet(shown, 'agents-qwen')}\necho "$OPENAI_BASE_URL $OPENAI_MODEL"`,
    ]);
    expect(variables).toBe(`${bench.gateway.url}/v1 acme/odd\n`);
    const address = `${bench.gateway.url}/v1`;
    for (const [id, words] of [
      ['python', `base_url="${address}"`],
      ['langchain', `ChatOpenAI(base_url="${address}"`],
      ['llamaindex', `OpenAILike(api_base="${address}"`],
      ['anthropic', `Anthropic(base_url="${bench.gateway.url}", api_key=`],
    ] as const) {
      expect([id, snippet(shown, id)]).toEqual([id, expect.stringContaining(words)]);
      expect(snippet(shown, id)).toContain('"acme/odd"');
    }
  });

  it('omit chat-only libraries for other models', async () => {
    const { text } = await pageOf('vectors');
    expect(text).toContain('id="snippet-python"');
    expect(text).not.toContain('id="snippet-langchain"');
  });
});

describe('the models page', () => {
  const rowOf = ({ text }: Shown, model: string): string =>
    [...text.matchAll(/<tr role="row">[^]*?<\/tr>/g)].flatMap(([row]) =>
      row.includes(`>${model}</a`) ? [row] : [],
    )[0] ?? '';

  it('shows price, context length, state and expected start time of each model', async () => {
    const cold = rowOf(await admin.get('/portal/models'), 'slow');
    for (const part of ['within 40 s', '8,192', '$0.10', '$0.05', '$0.40', '>cold<']) expect(cold).toContain(part);
    expect((await pageOf('slow')).text).toMatch(/Expected start<\/dt>\s*<dd>within 40 s/);
    await (await bench.chat({ model: 'slow' })).text();
    const ready = rowOf(await admin.get('/portal/models'), 'slow');
    expect(ready).toContain('>ready<');
    expect(ready).not.toContain('within');
    expect((await pageOf('slow')).text).toMatch(/Expected start<\/dt>\s*<dd>none/);
  });
});
