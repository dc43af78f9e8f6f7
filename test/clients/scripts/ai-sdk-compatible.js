import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
import { expectEmbeddings, expectRefusal, modelCases } from './ai-sdk.js';
import * as c from './cases.js';

const settings = { name: 'headgate', baseURL: c.baseURL, includeUsage: true, supportsStructuredOutputs: true };
const headgate = createOpenAICompatible({ ...settings, apiKey: c.apiKey });
const chat = modelCases(headgate(c.model));

await c.runCases({
  chat: chat.whole,
  'chat stream': chat.stream,
  tools: chat.tools,
  object: chat.object,
  embeddings: () => expectEmbeddings(headgate.embeddingModel(c.embeddingModel)),
  'wrong key': () => expectRefusal(createOpenAICompatible({ ...settings, apiKey: c.wrongKey })(c.model)),
});
