import OpenAI from 'openai';
import * as c from './cases.js';

const client = new OpenAI({ baseURL: c.baseURL, apiKey: c.apiKey, maxRetries: 0 });
const messages = [{ role: 'user', content: c.question }];
const asked = { model: c.model, messages, max_completion_tokens: c.outputMax };
const responses = { model: c.model, input: c.question, max_output_tokens: c.outputMax };

await c.runCases({
  async models() {
    const ids = [];
    for await (const { id } of client.models.list()) ids.push(id);
    c.expect(ids.includes(c.model), `${c.model} is not in the list`);
    c.expect((await client.models.retrieve(c.model)).id === c.model, 'another model came back');
  },
  async chat() {
    const { choices, usage } = await client.chat.completions.create(asked);
    c.expectText(choices[0].message.content);
    c.expect(usage.completion_tokens > 0, 'no usage');
  },
  async 'chat stream'() {
    const stream = await client.chat.completions.create({ ...asked, stream: true });
    await c.expectStream(stream, ({ choices }) => choices[0]?.delta.content);
  },
  async tools() {
    const tool = { type: 'function', function: { name: 'get_weather', strict: true, parameters: c.citySchema } };
    const answer = await client.chat.completions.create({
      model: c.model,
      messages,
      tools: [tool],
      tool_choice: 'required',
    });
    c.expectCity(JSON.parse(answer.choices[0].message.tool_calls[0].function.arguments));
  },
  async object() {
    const answer = await client.chat.completions.parse({
      model: c.model,
      messages,
      response_format: { type: 'json_schema', json_schema: { name: 'place', strict: true, schema: c.citySchema } },
    });
    c.expectCity(JSON.parse(answer.choices[0].message.content));
  },
  async embeddings() {
    const { data } = await client.embeddings.create({ model: c.embeddingModel, input: ['one', 'two'] });
    c.expect(data.length === 2 && data[0].embedding.length > 8, 'no vectors');
  },
  async responses() {
    c.expectText((await client.responses.create(responses)).output_text);
  },
  async 'responses stream'() {
    const stream = await client.responses.create({ ...responses, stream: true });
    await c.expectStream(stream, (event) => (event.type === 'response.output_text.delta' ? event.delta : ''));
  },
  async 'wrong key'() {
    const stranger = new OpenAI({ baseURL: c.baseURL, apiKey: c.wrongKey, maxRetries: 0 });
    await c.expectRefusal(
      () => stranger.chat.completions.create(asked),
      (error) => error instanceof OpenAI.AuthenticationError,
    );
  },
});
