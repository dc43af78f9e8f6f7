import { createAnthropic } from '@ai-sdk/anthropic';
import { expectRefusal, modelCases } from './ai-sdk.js';
import * as c from './cases.js';

// Its apiKey goes into x-api-key.
const anthropic = createAnthropic({ baseURL: c.baseURL, authToken: c.apiKey });
const messages = modelCases(anthropic(c.model));

await c.runCases({
  tools: messages.tools,
  object: messages.object,
  messages: messages.whole,
  'messages stream': messages.stream,
  'wrong key': () => expectRefusal(createAnthropic({ baseURL: c.baseURL, authToken: c.wrongKey })(c.model)),
});
