import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type EngineDefinition, formatEngineFileProblem, loadEngineFiles } from '#core/catalog/catalog.ts';

let root: string;
let folder: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'hg-catalog-'));
  folder = join(root, 'engines');
  mkdirSync(folder);
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const chat = `version: 1
id: small-chat
name: Small Chat
hugging_face_id: Acme/Small-Chat
task_type: chat
context_length: 4096
pricing:
  input_per_million: 0.10
  cached_input_per_million: "0.05"
  output_per_million: 0.400000
driver: process
command: [serve-it, --socket, "{socket}"]
`;

const external = `version: 1
id: far-chat
name: Far Chat
hugging_face_id: Acme/Far-Chat
task_type: chat
context_length: 4096
driver: external
url: https://engine.example/base/
`;

function write(name: string, text: string): void {
  writeFileSync(join(folder, name), text);
}

function problems(): string[] {
  const result = loadEngineFiles(folder);
  return result.ok ? [] : result.problems.map(formatEngineFileProblem);
}

function load(): readonly EngineDefinition[] {
  const result = loadEngineFiles(folder);
  if (!result.ok) throw new Error(result.problems.map(formatEngineFileProblem).join('\n'));
  return result.engines;
}

describe('engine files that are refused', () => {
  it('give an external engine no address, two fields for it, or one address twice', () => {
    const url = 'url: https://engine.example/base/';
    for (const [lines, said] of [
      ['', /^engines\/far\.yaml:1: url: this field is missing; for several addresses: urls/],
      [`${url}\nurls: [https://a.example]`, /^engines\/far\.yaml:\d+: urls: either url, .* not both/],
      ['urls: []', /urls/],
      [
        'urls: [https://a.example, https://b.example, https://a.example/]',
        /urls\[2\]: this address stands there twice/,
      ],
      [
        'urls: ["http://A.example:80", "http://b.example", "http://a.example"]',
        /urls\[2\]: this address stands there twice/,
      ],
      ['urls: ["http://a.example", "http://a.example:80/"]', /urls\[1\]: this address stands there twice/],
      ['urls: ["https://a.example/x/", "https://A.example:443/y/../x"]', /urls\[1\]: this address stands there twice/],
      ['urls: ["http://127.0.0.1:8000", "http://127.1:8000"]', /urls\[1\]: this address stands there twice/],
      ['urls: ["http://[::1]:8000", "http://[0:0::1]:8000/"]', /urls\[1\]: this address stands there twice/],
      ['urls: [https://a.example, "ftp://b.example"]', /urls\[1\]: expected an http or https address/],
    ] as const) {
      write('far.yaml', external.replace(url, lines));
      expect(problems(), lines).toEqual([expect.stringMatching(said)]);
    }
  });
});

describe('engine files', () => {
  it('need neither repository nor cached price where somebody else runs the engine, and may have several addresses', () => {
    const urls = 'urls: [https://a.example/base/, "http://b.example:8000"]';
    const prices = 'pricing: { input_per_million: 0.10, output_per_million: "0.400000", flex_multiplier: 0.5 }';
    const far = external.replace('hugging_face_id: Acme/Far-Chat\n', '').replace(/url: .*/, urls);
    write('far.yaml', `${far}${prices}\n`);
    expect(load()[0]).toMatchObject({
      huggingFaceId: null,
      ownedBy: 'headgate',
      pricing: { inputPerMTokMicroUsd: 100_000n, cachedInputPerMTokMicroUsd: 100_000n },
      flexPricing: { cachedInputPerMTokMicroUsd: 50_000n },
      driver: { urls: ['https://a.example/base', 'http://b.example:8000'] },
    });
    write('chat.yaml', chat.replace(/hugging_face_id: .*\n/, ''));
    expect(problems()).toEqual(['engines/chat.yaml:1: hugging_face_id: this field is missing']);
  });

  it('have paths in their command that are relative to them, wherever the gateway runs', () => {
    const items = [
      './bin/serve',
      '{port}',
      '../models/m.gguf',
      '--model=./m',
      '--uri=https://x/./y',
      'm/./n',
      '..',
      '.x',
    ];
    write('chat.yaml', chat.replace(/command: .*/, `command: ${JSON.stringify(items)}`));
    const [{ driver } = {}] = load();
    expect(driver).toMatchObject({
      command: [
        join(folder, 'bin/serve'),
        '{port}',
        join(folder, '../models/m.gguf'),
        `--model=${join(folder, 'm')}`,
        '--uri=https://x/./y',
        'm/./n',
        '..',
        '.x',
      ],
    });
  });
});
