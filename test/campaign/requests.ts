import type { Random } from '#test/random.ts';

/** When a client leaves before the end of its answer. */
export type Leave = { readonly afterEvents: number } | { readonly afterMs: number };

/** One request of a campaign. */
export interface CampaignRequest {
  /** Sent as `X-Client-Request-Id`, so that its record is found even if no answer arrived. */
  readonly name: string;
  readonly path: CampaignPath;
  readonly stream: boolean;
  readonly body: object;
  /** How often an engine counts each prompt: the number of choices. */
  readonly choices: number;
  /** Null if the client stays. */
  readonly leave: Leave | null;
}

export type CampaignPath =
  | '/v1/chat/completions'
  | '/v1/completions'
  | '/v1/responses'
  | '/v1/messages'
  | '/v1/embeddings';

/** Catalog ids; no embeddings are drawn without a model for them. */
export interface CampaignModels {
  readonly chat: string;
  readonly embedding: string | null;
}

interface Drawn {
  readonly path: CampaignPath;
  readonly body: object;
  readonly choices?: number;
}

type Draw = (random: Random, models: CampaignModels) => Drawn;

const words = 'a river runs under the old bridge while seven grey herons wait for small fish in the cold water'.split(
  ' ',
);
/** The beginning of many prompts, so that engines find it in their prefix cache. */
const beginning = 'Answer as a patient teacher of geography would, who likes short sentences and rivers. '.repeat(4);
const wordsMax = 60;
const outputTokensMax = 24;
/** Output of a request whose client leaves: long enough that there is something to leave. */
const leftTokensMax = 160;
const textsMax = 300;
const leaving = 0.2;

function textOf(random: Random, max = wordsMax): string {
  const text = Array.from({ length: 1 + random.below(max) }, () => random.pick(words)).join(' ');
  return random.chance(0.3) ? beginning + text : text;
}

const city = { type: 'object', properties: { city: { type: 'string', enum: ['Paris', 'Rome'] } }, required: ['city'] };
const schema = { ...city, additionalProperties: false };
const weather = { name: 'get_weather', description: 'Weather of a city' };

/** Sampling as clients set it; each choice of a request with several differs. */
function sampling(random: Random, choices: number): object {
  // Engines reject several choices that would all be the same.
  const greedy = choices === 1 ? { temperature: 0 } : {};
  return random.pick<object>([{}, greedy, { temperature: 0.8, seed: random.below(1000) }, { top_p: 0.9 }]);
}

const choicesOf = (random: Random): number => (random.chance(0.25) ? 2 + random.below(3) : 1);

function chat(random: Random, { chat: model }: CampaignModels): Drawn {
  const choices = choicesOf(random);
  const system = random.chance(0.3) ? [{ role: 'system', content: beginning }] : [];
  const messages = [...system, { role: 'user', content: textOf(random) }];
  const extra = random.pick<object>([
    {},
    {},
    { stop: ['.'] },
    { logprobs: true, top_logprobs: 2 },
    { response_format: { type: 'json_schema', json_schema: { name: 'place', schema } } },
    { reasoning_effort: 'low' },
  ]);
  const body = { model, messages, n: choices, max_tokens: 1 + random.below(outputTokensMax), ...extra };
  return { path: '/v1/chat/completions', choices, body: { ...body, ...sampling(random, choices) } };
}

function tools(random: Random, { chat: model }: CampaignModels): Drawn {
  const tool = { type: 'function', function: { ...weather, parameters: schema } };
  const choice = random.pick<unknown>(['auto', 'required', { type: 'function', function: { name: weather.name } }]);
  const call = { id: 'call-1', type: 'function', function: { name: weather.name, arguments: '{"city":"Rome"}' } };
  const history = random.chance(0.5)
    ? []
    : [
        { role: 'assistant', content: null, tool_calls: [call] },
        { role: 'tool', tool_call_id: call.id, content: 'Sunny.' },
      ];
  const messages = [{ role: 'user', content: textOf(random) }, ...history];
  const body = { model, messages, tools: [tool], tool_choice: choice, max_tokens: 8 + random.below(outputTokensMax) };
  return { path: '/v1/chat/completions', body };
}

function completion(random: Random, { chat: model }: CampaignModels): Drawn {
  const prompts = Array.from({ length: 1 + random.below(3) }, () => textOf(random));
  const prompt = random.pick<unknown>([prompts, prompts[0], [1 + random.below(900), 2, 3, 5]]);
  const choices = choicesOf(random);
  const body = {
    model,
    prompt,
    n: choices,
    max_tokens: 1 + random.below(outputTokensMax),
    ...sampling(random, choices),
  };
  return { path: '/v1/completions', choices, body };
}

function response(random: Random, { chat: model }: CampaignModels): Drawn {
  const input = random.pick<unknown>([textOf(random), [{ role: 'user', content: textOf(random) }]]);
  const format = random.chance(0.2) ? { text: { format: { type: 'json_schema', name: 'place', schema } } } : {};
  const tool = random.chance(0.2) ? { tools: [{ type: 'function', ...weather, parameters: schema }] } : {};
  const body = { model, input, max_output_tokens: 4 + random.below(outputTokensMax), ...format, ...tool };
  return { path: '/v1/responses', body };
}

function message(random: Random, { chat: model }: CampaignModels): Drawn {
  const system = random.chance(0.3) ? { system: beginning } : {};
  const tool = random.chance(0.2) ? { tools: [{ ...weather, input_schema: schema }] } : {};
  const messages = [{ role: 'user', content: textOf(random) }];
  const body = { model, messages, max_tokens: 1 + random.below(outputTokensMax), ...system, ...tool };
  return { path: '/v1/messages', body };
}

/** Some lists are so long that the gateway divides them. */
function embeddings(random: Random, { embedding: model }: CampaignModels): Drawn {
  const texts = random.chance(0.2) ? textsMax : 1 + random.below(4);
  const input = Array.from({ length: texts }, () => textOf(random, 6));
  return { path: '/v1/embeddings', body: { model, input: random.chance(0.2) ? input[0] : input } };
}

/** As often as they are drawn, of 20. */
const shares: readonly (readonly [Draw, number])[] = [
  [chat, 8],
  [tools, 2],
  [completion, 3],
  [response, 3],
  [message, 3],
  [embeddings, 1],
];
const draws = shares.flatMap(([draw, share]) => Array.from({ length: share }, () => draw));

/** Draws a request; a seed with the same name draws the same one. When its client leaves depends on the machine too. */
export function drawRequest(random: Random, name: string, models: CampaignModels): CampaignRequest {
  const drawn = random.pick(models.embedding === null ? draws.filter((draw) => draw !== embeddings) : draws);
  const { path, body, choices = 1 } = drawn(random, models);
  const stream = random.chance(0.5) && path !== '/v1/embeddings';
  const wantsUsage = stream && path.endsWith('completions') && random.chance(0.5);
  const streamed = { ...(stream && { stream }), ...(wantsUsage && { stream_options: { include_usage: true } }) };
  const leaves = random.chance(leaving) && path !== '/v1/embeddings';
  const longer = leaves ? longerOutput(path, random) : {};
  const leave = leaves ? drawLeave(random, stream) : null;
  return { name, path, stream, choices, leave, body: { ...body, ...streamed, ...longer } };
}

function longerOutput(path: CampaignPath, random: Random): object {
  const tokens = 8 + random.below(leftTokensMax);
  return path === '/v1/responses' ? { max_output_tokens: tokens } : { max_tokens: tokens };
}

function drawLeave(random: Random, stream: boolean): Leave {
  return stream && random.chance(0.6) ? { afterEvents: 1 + random.below(60) } : { afterMs: random.below(6000) };
}
