import { tool } from '@langchain/core/tools';
import { ChatOpenAI, OpenAIEmbeddings } from '@langchain/openai';
import { z } from 'zod';
import * as c from './cases.js';

const settings = { apiKey: c.apiKey, maxRetries: 0, configuration: { baseURL: c.baseURL } };
const chat = new ChatOpenAI({ ...settings, model: c.model, maxTokens: c.outputMax });
const free = new ChatOpenAI({ ...settings, model: c.model });
const responses = new ChatOpenAI({ ...settings, model: c.model, maxTokens: c.outputMax, useResponsesApi: true });
const city = z.object({ city: z.string() });

await c.runCases({
  chat: async () => c.expectText((await chat.invoke(c.question)).text),
  'chat stream': async () => c.expectStream(await chat.stream(c.question), ({ text }) => text),
  async tools() {
    const weather = tool(({ city: name }) => `sunny in ${name}`, {
      name: 'get_weather',
      description: 'The weather of a city',
      schema: city,
    });
    const answer = await free.bindTools([weather], { tool_choice: 'required', strict: true }).invoke(c.question);
    c.expectCity(answer.tool_calls?.[0]?.args);
  },
  object: async () => c.expectCity(await free.withStructuredOutput(city, { method: 'jsonSchema' }).invoke(c.question)),
  async embeddings() {
    const vectors = await new OpenAIEmbeddings({ ...settings, model: c.embeddingModel }).embedDocuments(['one', 'two']);
    c.expect(vectors.length === 2 && vectors[0].length > 8, 'no vectors');
  },
  responses: async () => c.expectText((await responses.invoke(c.question)).text),
  'responses stream': async () => c.expectStream(await responses.stream(c.question), ({ text }) => text),
  async 'wrong key'() {
    const stranger = new ChatOpenAI({ ...settings, model: c.model, apiKey: c.wrongKey });
    await c.expectRefusal(
      () => stranger.invoke(c.question),
      ({ status }) => status === 401,
    );
  },
});
