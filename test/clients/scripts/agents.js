import { Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, run, setTracingDisabled, tool } from '@openai/agents';
import OpenAI from 'openai';
import { z } from 'zod';
import * as c from './cases.js';

setTracingDisabled(true);
const clientOf = (apiKey) => new OpenAI({ baseURL: c.baseURL, apiKey, maxRetries: 0 });
const chat = new OpenAIChatCompletionsModel(clientOf(c.apiKey), c.model);
const responses = new OpenAIResponsesModel(clientOf(c.apiKey), c.model);
// No output limit: an answer that reaches it is an error for this client.
const settings = { name: 'Weather', instructions: 'Be brief.' };

async function expectAnswer(model) {
  c.expectText((await run(new Agent({ ...settings, model }), c.question)).finalOutput);
}

async function expectAnswerStream(model) {
  const result = await run(new Agent({ ...settings, model }), c.question, { stream: true });
  await c.expectStream(result.toTextStream(), (text) => text);
}

await c.runCases({
  chat: () => expectAnswer(chat),
  'chat stream': () => expectAnswerStream(chat),
  async tools() {
    const cities = [];
    const weather = tool({
      name: 'get_weather',
      description: 'The weather of a city',
      parameters: z.object({ city: z.string() }),
      execute({ city }) {
        cities.push(city);
        return `sunny in ${city}`;
      },
    });
    const modelSettings = { toolChoice: 'required' };
    await run(new Agent({ ...settings, model: responses, tools: [weather], modelSettings }), c.question);
    c.expect(cities.length > 0, 'no tool was called');
  },
  async object() {
    const outputType = z.object({ city: z.string() });
    const agent = new Agent({ ...settings, model: responses, outputType });
    c.expectCity((await run(agent, c.question)).finalOutput);
  },
  responses: () => expectAnswer(responses),
  'responses stream': () => expectAnswerStream(responses),
  'wrong key': () =>
    c.expectRefusal(
      () => expectAnswer(new OpenAIResponsesModel(clientOf(c.wrongKey), c.model)),
      (error) => error instanceof OpenAI.AuthenticationError,
    ),
});
