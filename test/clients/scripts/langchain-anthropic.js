import { ChatAnthropic } from '@langchain/anthropic';
import * as c from './cases.js';

// Its apiKey goes into x-api-key.
const chatOf = (key) =>
  new ChatAnthropic({
    model: c.model,
    maxTokens: c.outputMax,
    maxRetries: 0,
    anthropicApiUrl: c.address,
    apiKey: 'unused',
    clientOptions: { authToken: key, apiKey: null },
  });
const chat = chatOf(c.apiKey);

await c.runCases({
  messages: async () => c.expectText((await chat.invoke(c.question)).text),
  'messages stream': async () => c.expectStream(await chat.stream(c.question), ({ text }) => text),
  'wrong key': () =>
    c.expectRefusal(
      () => chatOf(c.wrongKey).invoke(c.question),
      ({ status }) => status === 401,
    ),
});
