import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { chat, external, enginesFolder, load, problems, write, useEnginesFolder } from './engines-folder.ts';

useEnginesFolder();

describe('engine file validation', () => {
  it('rejects an external engine without an address, with both url and urls, or with an address twice', () => {
    const url = 'url: https://engine.example/base/';
    for (const [lines, said] of [
      ['', /^engines\/far\.yaml:1: url: this field is missing; for several addresses use urls/],
      [`${url}\nurls: [https://a.example]`, /^engines\/far\.yaml:\d+: urls: use either url .*not both/],
      ['urls: []', /urls/],
      ['urls: [https://a.example, https://b.example, https://a.example/]', /urls\[2\]: this address is listed twice/],
      [
        'urls: ["http://A.example:80", "http://b.example", "http://a.example"]',
        /urls\[2\]: this address is listed twice/,
      ],
      ['urls: ["http://a.example", "http://a.example:80/"]', /urls\[1\]: this address is listed twice/],
      ['urls: ["https://a.example/x/", "https://A.example:443/y/../x"]', /urls\[1\]: this address is listed twice/],
      ['urls: ["http://127.0.0.1:8000", "http://127.1:8000"]', /urls\[1\]: this address is listed twice/],
      ['urls: ["http://[::1]:8000", "http://[0:0::1]:8000/"]', /urls\[1\]: this address is listed twice/],
      ['urls: [https://a.example, "ftp://b.example"]', /urls\[1\]: expected an http or https address/],
    ] as const) {
      write('far.yaml', external.replace(url, lines));
      expect(problems(), lines).toEqual([expect.stringMatching(said)]);
    }
  });
});

describe('engine files', () => {
  it('need no hugging_face_id or cached price for an external engine, which can have several addresses', () => {
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

  it('resolve relative paths in command against their own folder', () => {
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
        join(enginesFolder(), 'bin/serve'),
        '{port}',
        join(enginesFolder(), '../models/m.gguf'),
        `--model=${join(enginesFolder(), 'm')}`,
        '--uri=https://x/./y',
        'm/./n',
        '..',
        '.x',
      ],
    });
  });
});
