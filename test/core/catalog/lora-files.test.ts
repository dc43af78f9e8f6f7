import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { chat, external, enginesFolder, load, problems, write, useEnginesFolder } from './engines-folder.ts';

useEnginesFolder();

describe('LoRA adapters of an engine file', () => {
  it('are rejected when the engine cannot load them, its kind serves none, or a name is in use', () => {
    const vllm = chat.replace('driver: process', 'driver: process\nkind: vllm');
    const lora = (...items: string[]): string => `lora:\n${items.map((item) => `  - { ${item} }`).join('\n')}\n`;
    const found = (text: string): string[] => {
      write('chat.yaml', text);
      return problems().map((problem) => problem.replace(/^engines\/chat.yaml:\d+: /, ''));
    };
    expect(found(`${chat}max_loras: 2\nmax_lora_rank: 64\n`)).toEqual([
      'max_loras: allowed only if lora lists adapters',
      'max_lora_rank: allowed only if lora lists adapters',
    ]);
    expect(found(chat + lora('id: a, path: /models/a'))).toEqual([
      'lora: supported by vLLM only; set kind: vllm if the engine runs vLLM',
    ]);
    for (const [item, problem] of [
      ['id: a', 'lora[0].path: this field is missing'],
      [
        'id: a, path: models',
        'lora[0].path: expected an absolute path of a folder, or a repository such as owner/name',
      ],
      ['id: a, path: /models/../etc', 'lora[0].path: expected an absolute path of a folder without ..'],
      ['id: a, path: "/models/a=b"', 'lora[0].path: must not contain = , { or }, which vLLM cannot parse in a path'],
      ['id: a, path: /a, upstream_model: b', 'lora[0].upstream_model: remove it; Headgate uses the id in the engine'],
      [
        'id: SMALL-chat, path: /a',
        'lora[0].id: "SMALL-chat" is already the id, name, alias or repository of engines/chat.yaml: choose a different id for one of them',
      ],
      [
        'id: a, path: acme/small-chat',
        'lora[0].path: "acme/small-chat" is already the id, name, alias or repository of engines/chat.yaml: requests use it as a model name, so remove it from one of the two files',
      ],
    ] as const) {
      expect(found(vllm + lora(item)), item).toContain(problem);
    }
    expect(
      found(vllm + lora('id: a, path: /a, pricing: { input_per_million: 0.1234567, output_per_million: 1 }')),
    ).toEqual([expect.stringMatching(/^lora\[0\]\.pricing\.input_per_million: expected an amount in US dollars/)]);
    const flagged = vllm.replace('serve-it,', 'serve-it, --lora-modules, a=b, --max-loras, "2",');
    expect(found(flagged + lora('id: a, path: /a'))).toEqual([
      'command[1]: --lora-modules: remove it; Headgate sets it from lora',
      'command[3]: --max-loras: remove it and set max_loras',
    ]);
    expect(found(`${external}max_loras: 2\n${lora('id: a, path: /a')}`)).toEqual([
      'max_loras: remove it; an external engine loads its own adapters',
      'lora[0].path: remove it; an external engine loads its own adapters',
    ]);
  });

  it('have the path that vLLM receives, and the prices of their base unless they have their own', () => {
    write(
      'chat.yaml',
      [
        chat.replace('driver: process', 'driver: process\nkind: vllm'),
        'lora:',
        '  - { id: a, path: ./lora/a, pricing: { input_per_million: 0.30, output_per_million: 1.000001 } }',
        '  - { id: b, path: Acme/b-lora, name: The B, aliases: [bee] }',
      ].join('\n'),
    );
    const [engine] = load();
    expect(engine?.lora).toMatchObject([
      {
        id: 'a',
        name: 'a',
        path: join(enginesFolder(), 'lora/a'),
        huggingFaceId: null,
        ownedBy: 'Acme',
        pricing: {
          inputPerMTokMicroUsd: 300_000n,
          cachedInputPerMTokMicroUsd: 300_000n,
          outputPerMTokMicroUsd: 1_000_001n,
        },
      },
      {
        id: 'b',
        name: 'The B',
        aliases: ['bee'],
        path: 'Acme/b-lora',
        huggingFaceId: 'Acme/b-lora',
        pricing: engine?.pricing,
      },
    ]);
  });
});
