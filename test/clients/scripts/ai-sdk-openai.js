import { createOpenAI } from '@ai-sdk/openai';
import { expectEmbeddings, expectRefusal, modelCases } from './ai-sdk.js';
import * as c from './cases.js';

const openai = createOpenAI({ baseURL: c.baseURL, apiKey: c.apiKey });
const chat = modelCases(openai.chat(c.model));
const responses = modelCases(openai(c.model));

await c.runCases({
  chat: chat.whole,
  'chat stream': chat.stream,
  tools: responses.tools,
  object: responses.object,
  embeddings: () => expectEmbeddings(openai.embedding(c.embeddingModel)),
  responses: responses.whole,
  'responses stream': responses.stream,
  'wrong key': () => expectRefusal(createOpenAI({ baseURL: c.baseURL, apiKey: c.wrongKey })(c.model)),
});
