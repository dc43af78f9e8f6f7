import Anthropic from '@anthropic-ai/sdk';
import * as c from './cases.js';

const client = new Anthropic({ baseURL: c.address, apiKey: c.apiKey, maxRetries: 0 });
const messages = [{ role: 'user', content: c.question }];
const asked = { model: c.model, max_tokens: c.outputMax, messages };

await c.runCases({
  async models() {
    const ids = [];
    for await (const { id } of client.models.list({ limit: 1 })) ids.push(id);
    c.expect(ids.includes(c.model), `${c.model} is not in the list`);
    c.expectText((await client.models.retrieve(c.model)).display_name);
  },
  async tools() {
    const answer = await client.messages.create({
      ...asked,
      max_tokens: 512,
      tools: [{ name: 'get_weather', strict: true, input_schema: c.citySchema }],
      tool_choice: { type: 'any' },
    });
    c.expectCity(answer.content.find(({ type }) => type === 'tool_use')?.input);
  },
  async object() {
    const format = { type: 'json_schema', schema: c.citySchema };
    const answer = await client.messages.create({ ...asked, max_tokens: 512, output_config: { format } });
    c.expectCity(JSON.parse(answer.content.find(({ type }) => type === 'text').text));
  },
  async messages() {
    const { content, usage } = await client.messages.create(asked);
    c.expectText(content.find(({ type }) => type === 'text')?.text);
    c.expect(usage.output_tokens > 0, 'no usage');
  },
  async 'messages stream'() {
    const { content } = await client.messages.stream(asked).finalMessage();
    c.expectText(content.find(({ type }) => type === 'text')?.text);
  },
  async 'wrong key'() {
    const stranger = new Anthropic({ baseURL: c.address, apiKey: c.wrongKey, maxRetries: 0 });
    await c.expectRefusal(
      () => stranger.messages.create(asked),
      (error) => error instanceof Anthropic.AuthenticationError,
    );
  },
});
