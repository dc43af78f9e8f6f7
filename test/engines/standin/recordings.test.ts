import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Answer, at, framesOf, type StandIn, startStandIn } from '#test/standin/engine.ts';

/**
 * Replays what a real vLLM 0.29.0 was asked and compares what it said with what the stand-in says. What 0.32 says in
 * other words is compared in those of 0.32.
 */

interface Recording {
  request: { method: string; path: string; headers: Record<string, string>; body: unknown; note?: string };
  status: number;
  headers: [string, string][];
  reads: [number, string][];
}

const FOLDER = join(import.meta.dirname, 'recordings');
const COMMON = [
  'serve',
  '/models/smollm2-135m',
  '--served-model-name',
  'smollm2-135m',
  'SmolLM2-135M-Instruct',
  '--max-model-len',
  '2048',
];
const FORCED = ['--enable-force-include-usage', '--enable-prompt-tokens-details'];
const FLAGS: Record<string, string[]> = {
  'forced-usage': [
    ...FORCED,
    '--enable-request-id-headers',
    '--enable-auto-tool-choice',
    '--tool-call-parser',
    'hermes',
    '--api-key',
    '<key>',
    '--block-size',
    '128',
  ],
  'usage-on-request': [
    '--enable-prompt-tokens-details',
    '--enable-request-id-headers',
    '--reasoning-parser',
    'deepseek_r1',
    '--dev-mode',
  ],
  'aborted-by-id': [...FORCED, '--dev-mode'],
  embedding: ['--runner', 'pooling', '--convert', 'embed', '--embedding-dimensions', '576', '--api-key', '<key>'],
};
const EXACT_FOLDERS = ['forced-usage', 'usage-on-request', 'embedding'];

function load(folder: string, name: string): Recording {
  return JSON.parse(readFileSync(join(FOLDER, folder, `${name}.json`), 'utf8')) as Recording;
}

function names(folder: string): string[] {
  return readdirSync(join(FOLDER, folder)).map((file) => file.replace(/\.json$/, ''));
}

function bodyOf(recording: Recording): string {
  return recording.reads.map(([, text]) => text).join('');
}

const THOUGHT = 'The capital of France is Paris.';
const CONTINUED = ' and so it goes on'.repeat(40);

function textIn(member: unknown, key: string): string {
  const value = at(member, key);
  return typeof value === 'string' ? value : '';
}

/** The text of a recorded choice: the piece, and what must follow so that it ends the same way. */
function pieceOf(choice: unknown, name: string): { text: string; thought: string } {
  const message = at(choice, 'delta') ?? at(choice, 'message') ?? choice;
  const cut = at(choice, 'finish_reason') === 'length' && !name.includes('reasoning') ? CONTINUED : '';
  const text = textIn(message, 'content') + textIn(message, 'text') + textIn(choice, 'stop_reason') + cut;
  return { text, thought: textIn(message, 'reasoning') };
}

/** Settings that make the stand-in repeat a recorded message, streamed or not. */
function messageKnobs(recorded: string): Record<string, unknown> {
  const values = (key: string): string[] =>
    [...recorded.matchAll(new RegExp(`"type":"\\w+","${key}":("(?:[^"\\\\]|\\\\.)*")`, 'g'))].map(
      ([, json = '""']) => JSON.parse(json) as string,
    );
  const thought = values('thinking').join('');
  if (thought === '') return { text: values('text').join('') };
  return { text: values('text').join(''), reasoning_text: thought, output_tokens: 8 };
}

/** Knobs with which the stand-in says what the model said, choice by choice. */
function knobsFor(recording: Recording, name: string): Record<string, unknown> {
  const recorded = bodyOf(recording);
  if (name.startsWith('messages-')) return messageKnobs(recorded);
  if (recording.status !== 200 || !recorded.includes('"choices"')) return {};
  if (name === 'chat-stream-reasoning-hidden') return { text: '', reasoning_text: THOUGHT, output_tokens: 8 };
  const texts: string[] = [];
  let thought = '';
  const frames = recorded.startsWith('data:') ? framesOf(recorded) : [JSON.parse(recorded) as unknown];
  for (const choice of frames.flatMap((frame) => (at(frame, 'choices') as unknown[] | undefined) ?? [])) {
    const index = at(choice, 'index') as number;
    const piece = pieceOf(choice, name);
    texts[index] = (texts[index] ?? '') + piece.text;
    thought += piece.thought;
  }
  if (thought === '') return { text: texts };
  const whole = texts.join('') === '' && recorded.includes('"finish_reason":"stop"');
  return { text: texts, reasoning_text: thought, ...(whole ? { output_tokens: 8 } : {}) };
}

function replay(engine: StandIn, recording: Recording, name: string): Promise<Answer> {
  const { method, path, headers, note } = recording.request;
  let { body } = recording.request;
  if (typeof body === 'object' && body !== null) {
    body = { ...body, standin: knobsFor(recording, name) };
    const long = 'many words '.repeat(2000);
    if (note !== undefined && path.includes('chat'))
      body = { ...(body as object), messages: [{ role: 'user', content: long }] };
    if (note !== undefined && path.includes('embeddings')) body = { ...(body as object), input: long };
  }
  return engine.send({ method, path, headers, body });
}

/** Mistakes in a body as vLLM 0.32 lists them; 0.29 named each by a tuple, and with all of its value. */
function inNewWords(text: string): string {
  const dotted = (tuple: string): string =>
    tuple
      .replaceAll("'", '')
      .split(', ')
      .map((step) => step.replace(/,$/, ''))
      .filter((step) => !/[[(]/.test(step))
      .join('.');
  const lines = text
    .replace(/'loc': \(((?:'[^']*'|[\d, ])+)\)/g, (_, tuple: string) => `'loc': '${dotted(tuple)}'`)
    .replace(/'input': (?:'<\w+ of \d+ items>'|\{[^}]*\})/g, "'input': object")
    .replace(/'input': '?None'?/g, "'input': None")
    .split('\\n  {');
  const more = lines.length - 11;
  if (more <= 0) return lines.join('\\n  {');
  const end = lines.at(-1)?.replace(/^.*\}\}?(?=",")/, '') ?? '';
  return `${lines.slice(0, 11).join('\\n  {')}\\n  ...and ${more} more errors${end}`;
}

/** Takes out what no two engines share: ids, times, and counts that are the tokenizer's. */
function normal(text: string): string {
  return inNewWords(text)
    .replace(/\{"version":"0\.\d+\.0"\}/, '{"version":""}')
    .replace(/"id":"(chatcmpl-tool|chatcmpl|cmpl|embd|modelperm)-[^"]*"/g, '"id":"$1-"')
    .replace(/"created":\d+/g, '"created":0')
    .replace(/"signature":"[0-9a-f]{32}"/g, '"signature":""')
    .replace(
      /"(input_tokens|original_input_tokens|cache_creation_input_tokens|cache_read_input_tokens)":\d+/g,
      '"$1":0',
    )
    .replace(/"system_fingerprint":"vllm-0\.\d+\.0-[0-9a-f]{8}"/g, '"system_fingerprint":"vllm"')
    .replace(/"(prompt_tokens|total_tokens|cached_tokens|created_cache_tokens|reasoning_tokens)":\d+/g, '"$1":0');
}

/** One line for a value's shape: the order of its keys and the type, or the telling value, of its leaves. */
function shape(value: unknown, key = ''): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) {
    const inner = new Set(value.map((item) => shape(item)));
    return `[${key === 'bytes' || key === 'content' || key.endsWith('ids') || key === 'tokens' || key === 'embedding' ? [...inner].join('|') : value.map((item) => shape(item)).join(',')}]`;
  }
  if (typeof value === 'object') {
    return `{${Object.entries(value)
      .map(([name, member]) => `${name}:${shape(member, name)}`)
      .join(',')}}`;
  }
  if (key === 'finish_reason' || key === 'index' || key === 'object' || key === 'role' || key === 'type')
    return `${value as string | number}`;
  return typeof value;
}

/** The frames' shapes of each choice in their order, repetitions folded. */
function streamShape(text: string): Record<string, string[]> {
  const byChoice: Record<string, string[]> = {};
  for (const frame of framesOf(text)) {
    const index = (at(frame, 'choices', 0, 'index') as number | undefined) ?? 'end';
    const list = (byChoice[index] ??= []);
    const line = typeof frame === 'string' ? frame : shape(frame);
    if (list.at(-1) !== line) list.push(line);
  }
  return byChoice;
}

function headersOf(list: readonly [string, string][]): string[] {
  const varying = new Set(['x-request-id', 'content-length']);
  return list
    .filter(([name]) => name !== 'date')
    .map(([name, value]) => (varying.has(name) ? name : `${name}: ${value}`))
    .sort();
}

/** Answers whose words are not the model's, so that every byte must be right. */
const SAME_BYTES =
  /^(error-(?!bad-role)|chat-on-embedding|embedding-(missing|empty|too|dimensions|wrong)|load|health|version|models|is-sleeping)/;
/** Chats and completions whose text the stand-in's tokenizer cuts as the model's did: every frame must be right. */
const SAME_FRAMES =
  /^(chat-(json|stream)(-alias|-length|-stop|-unknown-fields|-after-cut|-tool-auto|-include-usage|-usage-refused|-interval-5|-no-usage|-continuous-usage|-reasoning|-reasoning-hidden|-request-id|-cached-\d)?|chat-json-schema|messages-(?:json|stream|stream-reasoning|count-tokens)|completion-(json|stream|stream-include-usage|stream-no-usage))$/;

/** Both answers in the strictest form in which they must be the same. */
function comparable(name: string, answer: string, recorded: string): { seen: unknown; wanted: unknown } {
  // vLLM echoes the input, which here holds the knobs as well.
  if (SAME_BYTES.test(name))
    return { seen: normal(answer.replaceAll(", 'standin': {}", '')), wanted: normal(recorded) };
  if (SAME_FRAMES.test(name)) {
    const counted = name === 'chat-json-schema' ? /"completion_tokens":\d+/g : /(?!)/;
    return { seen: normal(answer).replace(counted, ''), wanted: normal(recorded).replace(counted, '') };
  }
  if (recorded.startsWith('data:')) return { seen: streamShape(answer), wanted: streamShape(recorded) };
  return { seen: shape(JSON.parse(answer)), wanted: shape(JSON.parse(recorded)) };
}

describe.each(EXACT_FOLDERS)('recordings replayed from %s', (folder) => {
  let engine: StandIn;
  beforeAll(async () => {
    engine = await startStandIn([...COMMON, ...(FLAGS[folder] ?? [])]);
  });
  afterAll(() => engine.stop());

  const skipped = /aborted-by-id|cut-after-4|metrics|bytes-only/;
  it.each(names(folder).filter((name) => !skipped.test(name)))(
    "have vLLM's status, headers and body: %s",
    async (name) => {
      const recording = load(folder, name);
      const answer = await replay(engine, recording, name);
      const recorded = bodyOf(recording);
      expect(answer.status).toBe(recording.status);
      expect(headersOf(answer.headers)).toEqual(headersOf(recording.headers));
      const { seen, wanted } = comparable(name, answer.text, recorded);
      expect(seen).toEqual(wanted);
    },
  );

  it('exist', () => {
    expect(names(folder).length).toBeGreaterThan(10);
  });
});

it("streams a binary embedding with vLLM's headers", async () => {
  const engine = await startStandIn([...COMMON, ...(FLAGS.embedding ?? [])]);
  const recording = load('embedding', 'embedding-bytes-only');
  const answer = await replay(engine, recording, 'embedding-bytes-only');
  await engine.stop();
  expect(headersOf(answer.headers)).toEqual(headersOf(recording.headers));
});

it('returns the metrics of vLLM, with its labels', async () => {
  const engine = await startStandIn([...COMMON, ...(FLAGS['forced-usage'] ?? [])]);
  const recorded = bodyOf(load('forced-usage', 'metrics-after'));
  const { text } = await engine.send({ method: 'GET', path: '/metrics' });
  await engine.stop();
  const series = (all: string): string[] =>
    all
      .split('\n')
      .filter((line) => line.startsWith('vllm:') && !/_bucket|cache_config_info/.test(line))
      .map((line) => line.slice(0, line.lastIndexOf(' ')));
  const known = new Set(series(recorded));
  expect(series(text).filter((name) => !known.has(name))).toEqual([]);
  expect(series(text).length).toBeGreaterThan(20);
});
