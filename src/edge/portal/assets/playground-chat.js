import { curl, pythonArguments } from './playground-code.js';

/** OpenAI's Chat Completions, with the fields that Headgate adds. */

/**
 * @typedef {import('./playground-protocols.js').Frame} Frame
 */

/** Returns the exact cost, every digit, from the chunk that ends a stream. @param {string} text */
const exactCost = (text) => /"cost":(\d+(?:\.\d+)?)[,}]/.exec(text)?.[1];

/** @type {import('./playground-protocols.js').Protocol} */
export const chat = {
  path: 'chat',
  lacks: [],
  request: (conversation) => ({
    ...conversation,
    stream: true,
    stream_options: { include_usage: true, continuous_usage_stats: true },
    usage: { include: true },
  }),
  reader: () => (data) => {
    if (data === '[DONE]') return { isLast: true };
    const frame = /** @type {Frame} */ (JSON.parse(data));
    return { ...frame, cost: frame.usage ? exactCost(data) : undefined };
  },
  snippets: (origin, body) => ({
    curl: curl(`${origin}/v1/chat/completions`, body),
    'Python (openai)': `import os
from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(`${origin}/v1`)}, api_key=os.environ["HEADGATE_API_KEY"])
stream = client.chat.completions.create(${pythonArguments(body, ['usage'])})
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)`,
    'JavaScript (openai)': `import OpenAI from 'openai';

const client = new OpenAI({ baseURL: ${JSON.stringify(`${origin}/v1`)}, apiKey: process.env.HEADGATE_API_KEY });
const stream = await client.chat.completions.create(${JSON.stringify(body, null, 2)});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? '');`,
  }),
};
