import { secrets } from './engine-file-fields.ts';
import type { EngineFilesCase } from './engine-files.ts';

/** Files that were read wrongly once. */

const good = [
  'version: 1',
  'id: chat',
  'name: Chat',
  'hugging_face_id: acme/chat',
  'task_type: chat',
  'context_length: 1',
  'driver: docker',
  'image: vllm/vllm-openai:v0.32.0',
  'args: [acme/chat]',
  '',
].join('\n');

const engine = (text: string): EngineFilesCase => ({ what: 'engines', files: [file('a.yaml', text)] });
const hosts = (text: string): EngineFilesCase => ({ what: 'engines', files: [file('hosts.yaml', text)] });
const imported = (what: 'llama-swap' | 'litellm', text: string): EngineFilesCase => ({
  what,
  files: [file('config.yaml', text)],
});
const file = (name: string, text: string): EngineFilesCase['files'][number] => ({ name, bytes: Buffer.from(text) });

const withBody = (body: string): EngineFilesCase =>
  engine(`${good}canaries: [{route: completions, body: {prompt: ${body}}}]\n`);

export const knownEngineFiles: readonly EngineFilesCase[] = [
  // Were rejected with words of the library or of JavaScript.
  engine(`${good}x: ${'['.repeat(5000)}`),
  engine(`${good}x:\n${'- '.repeat(5000)}x`),
  engine(`${good}x: ${'{a: '.repeat(5000)}`),
  hosts('['.repeat(1500)),
  engine(`${good}---\nx: y\n`),
  // Were accepted, and could not be stored or came back as something else.
  withBody('&own [*own]'),
  withBody('!!timestamp 2001-01-01'),
  withBody('!!set {a, b}'),
  withBody('!!binary aGk='),
  // The library reported these on the standard error.
  engine(`${good}? [a, b]\n: c\n`),
  // Were quoted.
  engine(`"\\x"{"id":"chat","entrypoint":["${secrets.HF_TOKEN}"]}`),
  imported('litellm', `{general_settings: {master_key: "${secrets.OPENAI_API_KEY}}}`),
  imported('llama-swap', `models: {m: {cmd: 'docker run --user -e T=${secrets.HF_TOKEN} a/b:1'}}\n`),
  imported('litellm', `{model_list: [], x: {api_key:\0${secrets.OPENAI_API_KEY}: 1}}`),
  // Ended the import with a stack, or with nothing.
  imported('litellm', 'model_list: []\n<<: ""\n'),
  imported('litellm', 'model_list: [{}]\n'),
  imported('llama-swap', 'models: &own {a: *own}\n'),
  imported('llama-swap', `macros: {a: "${'${a} '.repeat(20)}"}\nmodels: {m: {cmd: "\${a}"}}\n`),
];
