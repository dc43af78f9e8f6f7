import { APICallError, embedMany, generateText, Output, streamText, tool } from 'ai';
import { z } from 'zod';
import * as c from './cases.js';

/** The cases of every provider of the AI SDK, for one of its models. */
export function modelCases(model) {
  const asked = { model, prompt: c.question, maxRetries: 0 };
  return {
    whole: async () => {
      const { text, usage } = await generateText({ ...asked, maxOutputTokens: c.outputMax });
      c.expectText(text);
      c.expect(usage.outputTokens > 0, 'no usage');
    },
    stream: async () => {
      const failures = [];
      const onError = ({ error }) => failures.push(error);
      const result = streamText({ ...asked, maxOutputTokens: c.outputMax, onError });
      let text = '';
      for await (const part of result.textStream) text += part;
      c.expect(failures.length === 0, String(failures[0]));
      c.expectText(text);
    },
    tools: async () => {
      const get_weather = tool({
        description: 'The weather of a city',
        strict: true,
        inputSchema: z.object({ city: z.string() }),
        execute: ({ city }) => `sunny in ${city}`,
      });
      const { toolResults } = await generateText({ ...asked, tools: { get_weather }, toolChoice: 'required' });
      c.expect(String(toolResults[0]?.output).startsWith('sunny in'), 'no tool was called');
    },
    object: async () => {
      const output = Output.object({ schema: z.object({ city: z.string() }) });
      c.expectCity((await generateText({ ...asked, output })).output);
    },
  };
}

export async function expectEmbeddings(model) {
  const { embeddings } = await embedMany({ model, values: ['one', 'two'], maxRetries: 0 });
  c.expect(embeddings.length === 2 && embeddings[0].length > 8, 'no vectors');
}

export async function expectRefusal(model) {
  await c.expectRefusal(
    () => generateText({ model, prompt: 'Hello', maxRetries: 0 }),
    (error) => APICallError.isInstance(error) && error.statusCode === 401,
  );
}
