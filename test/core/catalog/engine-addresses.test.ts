import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { chat, external, enginesFolder, load, problems, write, useEnginesFolder } from './engines-folder.ts';

useEnginesFolder();

describe('engine file validation', () => {
  it('rejects an external engine without an address, with both url and urls, or with an address twice', () => {
    const url = 'url: https://engine.example/base/';
    for (const [lines, said] of [
      ['', /^engines\/far\.yaml:1: url: this field is missing; for several addresses use urls or deployments/],
      [`${url}\nurls: [https://a.example]`, /^engines\/far\.yaml:\d+: urls: use only one of url .*urls .*deployments/],
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

  it('rejects deployments beside url or urls, and deployments that are equal, unnamed twice or wrong', () => {
    const a = 'url: "https://a.example"';
    for (const [lines, said] of [
      [`${a}\ndeployments: [{ ${a} }]`, /deployments: use only one of url .*deployments/],
      [`urls: [https://b.example]\ndeployments: [{ ${a} }]`, /deployments: use only one of url .*deployments/],
      ['deployments: []', /deployments: must not be empty/],
      ['deployments: [{ weight: 1 }]', /deployments\[0\]\.url: this field is missing/],
      [`deployments: [{ ${a}, weight: 0 }]`, /deployments\[0\]\.weight: must be more than 0|at least/],
      [`deployments: [{ ${a}, weight: 1001 }]`, /deployments\[0\]\.weight: must be at most 1000/],
      ['deployments: [{ url: "https://u:p@a.example" }]', /deployments\[0\]\.url: credentials are not allowed here/],
      [`deployments: [{ ${a}, api_key: "x" }]`, /deployments\[0\]\.api_key: unknown field/],
      [`deployments: [{ ${a} }, { name: b, url: "https://A.example:443/" }]`, /deployments\[1\]\.url: .*listed twice/],
      [`deployments: [{ ${a} }, { ${a}, upstream_model: x }]`, /deployments\[1\]\.name: .*called "a\.example"/],
      [`deployments: [{ ${a}, api_key_env: NOT_SET }]`, /deployments\[0\]\.api_key_env: .*NOT_SET is not set/],
    ] as const) {
      write('far.yaml', external.replace(/url: .*/, lines));
      expect(problems({}), lines).toEqual([expect.stringMatching(said)]);
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
      driver: { deployments: [{ url: 'https://a.example/base' }, { url: 'http://b.example:8000' }] },
    });
    write('chat.yaml', chat.replace(/hugging_face_id: .*\n/, ''));
    expect(problems()).toEqual(['engines/chat.yaml:1: hugging_face_id: this field is missing']);
  });

  it('give deployments the model and key of the file, unless they have their own', () => {
    const list =
      '[{ url: "https://a.example/" }, { name: b, url: "https://a.example", upstream_model: own, weight: 2.5 }]';
    write('far.yaml', external.replace(/url: .*/, `upstream_model: shared\ndeployments: ${list}`));
    const a = { name: 'a.example', url: 'https://a.example', upstreamModel: 'shared', apiKeyEnv: null, weight: 1 };
    expect(load()[0]?.driver).toMatchObject({
      deployments: [a, { ...a, name: 'b', upstreamModel: 'own', weight: 2.5 }],
    });
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
