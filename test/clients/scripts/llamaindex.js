import { OpenAI, OpenAIEmbedding, OpenAIResponses } from '@llamaindex/openai';
import { tool } from 'llamaindex';
import { z } from 'zod';
import * as c from './cases.js';

const settings = { model: c.model, apiKey: c.apiKey, baseURL: c.baseURL, maxRetries: 0 };
const llm = new OpenAI({ ...settings, maxTokens: c.outputMax });
const free = new OpenAI(settings);
const responses = new OpenAIResponses({ ...settings, maxOutputTokens: c.outputMax });
const messages = [{ role: 'user', content: c.question }];

await c.runCases({
  chat: async () => c.expectText((await llm.chat({ messages })).message.content),
  'chat stream': async () => c.expectStream(await llm.chat({ messages, stream: true }), ({ delta }) => delta),
  async tools() {
    const weather = tool({
      name: 'get_weather',
      description: 'The weather of a city',
      parameters: z.object({ city: z.string() }),
      execute: ({ city }) => `sunny in ${city}`,
    });
    const asked = { messages, tools: [weather], additionalChatOptions: { tool_choice: 'required' } };
    const { message } = await free.chat(asked);
    c.expect(JSON.stringify(message.options).includes('get_weather'), 'no tool was called');
  },
  async object() {
    const { message } = await free.chat({ messages, responseFormat: z.object({ city: z.string() }) });
    c.expectCity(JSON.parse(message.content));
  },
  async embeddings() {
    const embedding = new OpenAIEmbedding({ ...settings, model: c.embeddingModel });
    const vectors = await embedding.getTextEmbeddings(['one', 'two']);
    c.expect(vectors.length === 2 && vectors[0].length > 8, 'no vectors');
  },
  responses: async () => c.expectText((await responses.chat({ messages })).message.content),
  'responses stream': async () =>
    c.expectStream(await responses.chat({ messages, stream: true }), ({ delta }) => delta),
  'wrong key': () =>
    c.expectRefusal(
      () => new OpenAI({ ...settings, apiKey: c.wrongKey }).chat({ messages }),
      ({ status }) => status === 401,
    ),
});
