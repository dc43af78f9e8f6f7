import { describe, expect, it } from 'vitest';
import { useFolders } from '#test/cli/run-cli.ts';
import { importInto } from './import-into.ts';

const folders = useFolders();

const importFrom = (program: string, config: string) => importInto(folders(), program, config);

const secret = 'hf_nobodymayseethisone00000';

const litellm = `
model_list:
  - model_name: house-chat
    litellm_params:
      model: hosted_vllm/Acme/Chat
      api_base: http://gpu-1.example:8000/v1/
      api_key: os.environ/HOUSE_KEY
      input_cost_per_token: 0.00000015
      output_cost_per_token: 6e-07
      cache_read_input_token_cost: 7.5e-8
      rpm: 60
      weight: 3
    model_info: {mode: chat, max_input_tokens: 131072}
  - model_name: house-chat
    litellm_params: {model: hosted_vllm/Acme/Chat, api_base: "http://gpu-2.example:8000/v1", api_key: EMPTY}
  - model_name: far
    litellm_params:
      model: openai/far-large
      api_key: ${secret}
      temperature: 0.2
      input_cost_per_token: 0.0000001234567
  - model_name: vectors
    litellm_params: {model: openai/vec, api_base: "https://vec.example/v1"}
    model_info: {mode: embedding, max_input_tokens: 512, input_cost_per_token: 1e-8}
  - model_name: claude
    litellm_params: {model: anthropic/claude, api_key: os.environ/A}
  - model_name: "anything/*"
    litellm_params: {model: "openai/*", api_key: os.environ/A}
  - model_name: somewhere
    litellm_params: {model: openai/x, api_base: os.environ/WHERE}
  - model_name: painter
    litellm_params: {model: openai/painter, api_base: "https://p.example"}
    model_info: {mode: image_generation}
general_settings:
  master_key: ${secret}
litellm_settings:
  fallbacks: [{house-chat: [far, vectors, painter, {model: house-chat}]}, {ghost: [far]}]
  default_fallbacks: [house-chat]
  context_window_fallbacks: [{far: [house-chat]}]
  callbacks: [langfuse]
environment_variables:
  SOME_KEY: ${secret}
router_settings:
  routing_strategy: least-busy
  model_group_alias: {gpt-4: house-chat, gpt-4o: {model: house-chat, hidden: true}, FAR: vectors, lost: nowhere}
`;

describe('headgate import litellm', () => {
  it('writes external engines with exact prices, without secrets', async () => {
    const { code, engines, everything, notes } = await importFrom('litellm', litellm);
    expect(code).toBe(0);
    expect(everything).not.toContain(secret);
    expect(engines.get('house-chat')).toMatchObject({
      aliases: ['gpt-4', 'gpt-4o'],
      huggingFaceId: 'Acme/Chat',
      contextLength: 131_072,
      kind: 'vllm',
      pricing: {
        inputPerMTokMicroUsd: 150_000n,
        cachedInputPerMTokMicroUsd: 75_000n,
        outputPerMTokMicroUsd: 600_000n,
      },
      driver: {
        deployments: [
          {
            name: 'gpu-1.example:8000',
            url: 'http://gpu-1.example:8000',
            upstreamModel: 'Acme/Chat',
            apiKeyEnv: 'HOUSE_KEY',
            weight: 3,
          },
          {
            name: 'gpu-2.example:8000',
            url: 'http://gpu-2.example:8000',
            upstreamModel: 'Acme/Chat',
            apiKeyEnv: null,
            weight: 1,
          },
        ],
      },
    });
    for (const alias of ['FAR', 'lost']) {
      expect(notes).toContainEqual(expect.stringContaining(`model_group_alias ${alias}: not imported; its model does`));
    }
    expect(engines.get('far')).toMatchObject({
      pricing: { inputPerMTokMicroUsd: 123_457n, cachedInputPerMTokMicroUsd: 123_457n, outputPerMTokMicroUsd: 0n },
      driver: {
        deployments: [{ url: 'https://api.openai.com', upstreamModel: 'far-large', apiKeyEnv: 'FAR_API_KEY' }],
      },
    });
    expect(engines.get('vectors')).toMatchObject({
      taskType: 'embedding',
      contextLength: 512,
      pricing: { inputPerMTokMicroUsd: 10_000n },
      driver: { deployments: [{ apiKeyEnv: null }] },
    });
    expect([...engines.keys()].toSorted()).toEqual(['far', 'house-chat', 'vectors']);
    const fallbacks = ['house-chat', 'far', 'vectors'].map((id) => engines.get(id)?.fallbacks);
    expect(fallbacks).toEqual([['far'], ['house-chat'], []]);
  });

  it('merges equal deployments of one model into one engine with several addresses', async () => {
    const entry = (address: string, more = '') =>
      `  - {model_name: chat, litellm_params: {model: hosted_vllm/Acme/Chat, api_base: "${address}", api_key: os.environ/K${more}}}\n`;
    const all = [
      entry('http://a.example:8000/v1', ', input_cost_per_token: 1e-7'),
      entry('http://b.example:8000/v1/'),
      entry('http://b.example:8000/v1'),
    ];
    const { engines, notes } = await importFrom('litellm', `model_list:\n${all.join('')}`);
    expect([...engines.keys()]).toEqual(['chat']);
    const shared = { name: null, upstreamModel: 'Acme/Chat', apiKeyEnv: 'K', weight: 1 };
    expect(engines.get('chat')?.driver).toMatchObject({
      deployments: [
        { ...shared, url: 'http://a.example:8000' },
        { ...shared, url: 'http://b.example:8000' },
      ],
    });
    expect(notes.join('\n')).not.toContain('separate engine');
  });

  it('makes one engine with several deployments of entries with other models, keys, weights and prices', async () => {
    const list = `model_list:
  - model_name: chat
    litellm_params: {model: openai/gpt-x, api_key: sk-0123456789abcdef0123, weight: 0.5, input_cost_per_token: 1e-6}
    model_info: {max_input_tokens: 128000}
  - model_name: chat
    litellm_params: {model: openai/gpt-x, api_key: sk-fedcba98765432100123}
  - model_name: chat
    litellm_params: {model: hosted_vllm/Acme/Chat, api_base: "http://gpu.example:8000/v1", weight: 0, input_cost_per_token: 2e-6}
    model_info: {max_input_tokens: 32768}
  - model_name: chat
    litellm_params: {model: anthropic/claude, api_key: os.environ/A}
  - model_name: chat
    litellm_params: {model: openai/embed, api_key: os.environ/B}
    model_info: {mode: embedding}
`;
    const { engines, notes, everything } = await importFrom('litellm', list);
    expect(engines.get('chat')).toMatchObject({
      kind: 'openai',
      contextLength: 32_768,
      pricing: { inputPerMTokMicroUsd: 1_000_000n },
      driver: {
        findsKind: true,
        deployments: [
          { name: 'api.openai.com', upstreamModel: 'gpt-x', apiKeyEnv: 'CHAT_API_KEY', weight: 0.5 },
          { name: 'api.openai.com 2', upstreamModel: 'gpt-x', apiKeyEnv: 'CHAT_2_API_KEY', weight: 1 },
          { name: 'gpu.example:8000', upstreamModel: 'Acme/Chat', apiKeyEnv: null, weight: 1 },
        ],
      },
    });
    expect(engines.get('chat-2')).toMatchObject({ taskType: 'embedding' });
    expect(everything).not.toMatch(/sk-0123|sk-fedc/);
    for (const note of [
      'chat: another entry with this name became a separate engine, because its mode differs',
      'chat: its deployments have different prices: the engine file has the prices of the first one',
      'chat: weight 0: not imported; expected more than 0',
      'chat: not imported: Headgate knows no OpenAI-compatible API of anthropic',
      "chat: its API key was not written to the file: set CHAT_2_API_KEY to the key in the gateway's environment",
    ]) {
      expect(notes, note).toContainEqual(expect.stringContaining(note));
    }
  });

  it('lists what it did not import', async () => {
    const { notes } = await importFrom('litellm', litellm);
    for (const note of [
      'house-chat: rpm: not imported; set limits for API keys instead',
      "far: its API key was not written to the file: set FAR_API_KEY to the key in the gateway's environment",
      'far: input_cost_per_token was rounded up to 0.123457 USD per million tokens',
      'far: not imported, because Headgate has no such setting: temperature',
      'claude: not imported: Headgate knows no OpenAI-compatible API of anthropic',
      'anything/*: not imported: its name has a wildcard',
      'somewhere: not imported: its address is in the environment',
      'painter: not imported: Headgate does not serve models of mode image_generation',
      '-: litellm_settings: context_window_fallbacks (far): not imported; a request that the engine rejects goes to no',
      '-: litellm_settings: not imported, because Headgate has no such setting: callbacks',
      '-: fallbacks: imported; they answer only requests with the header x-headgate-allow-fallback: true',
      '-: fallbacks: the model ghost does not exist',
      'house-chat: fallbacks: not imported; the model vectors has a different task',
      'house-chat: fallbacks: not imported; the model painter does not exist',
      'vectors: fallbacks: not imported; the model house-chat has a different task',
      '-: general_settings (master_key): not imported; "headgate import litellm --database URL"',
    ]) {
      expect(notes, note).toContainEqual(expect.stringContaining(note));
    }
  });
});
