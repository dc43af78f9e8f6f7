import { describe, expect, it } from 'vitest';
import { type Body, chatPath, errorOf, standinFile, useInference } from '#test/inference/inference-gateway.ts';

/** Grammars that requests make an engine build: what of them it is spared, and what settings let through. */

const settings = 'structured_outputs: { max_choices: 3, max_depth: 3, max_properties: 4, max_bytes: 900 }';
const bench = useInference(() => ({
  engines: {
    chat: standinFile('chat', {
      flags: ['--output-tokens', '2', '--enable-auto-tool-choice', '--tool-call-parser', 'hermes'],
    }),
    open: standinFile('open', { flags: ['--output-tokens', '2'], lines: ['allow: [regex, grammar]'] }),
    small: standinFile('small', { flags: ['--output-tokens', '2'], lines: [settings] }),
  },
}));

const refused = { status: 400, code: 'unsupported_parameter', type: 'invalid_request_error' };
const ask = (fields: object): Promise<Response> => bench.chat(fields);
const refusal = async (fields: object): Promise<Body> => errorOf(await ask(fields));

const string = { type: 'string' };
const schemaFormat = (schema: unknown): object => ({
  response_format: { type: 'json_schema', json_schema: { name: 'x', schema } },
});
const objectOf = (names: readonly string[], more: object = {}): object => ({
  type: 'object',
  properties: Object.fromEntries(names.map((name) => [name, string])),
  ...more,
});
const names = (count: number): string[] => Array.from({ length: count }, (_, at) => `p${at}`);
const nested = (depth: number): object =>
  depth <= 1 ? string : { type: 'object', properties: { a: nested(depth - 1) } };
const tool = (parameters: unknown, more: object = {}): object => ({
  type: 'function',
  function: { name: `t${Math.random()}`.replace('.', ''), parameters, ...more },
});

describe('regex and grammar', () => {
  const ways: [string, object, string][] = [
    ['structured_outputs.regex', { structured_outputs: { regex: '(a{0,300}){0,300}' } }, 'regex'],
    ['structured_outputs.whitespace_pattern', { structured_outputs: { json: {}, whitespace_pattern: ' *' } }, 'regex'],
    ['structured_outputs.grammar', { structured_outputs: { grammar: 'root ::= "a"' } }, 'grammar'],
    [
      'response_format',
      { response_format: { type: 'structural_tag', format: { type: 'regex', pattern: 'a' } } },
      'regex',
    ],
    [
      'response_format',
      {
        response_format: {
          type: 'structural_tag',
          format: { type: 'sequence', elements: [{ type: 'grammar', grammar: 'root ::= "a"' }] },
        },
      },
      'grammar',
    ],
    [
      'structured_outputs.structural_tag',
      { structured_outputs: { structural_tag: '{"format":{"type":"regex","pattern":"a"}}' } },
      'regex',
    ],
  ];
  it.each(ways)('return 400 unless the engine file allows them: %s', async (param, fields, word) => {
    const error = await refusal(fields);
    expect(error).toMatchObject({ ...refused, param });
    expect(error.message).toContain(word);
    expect((await ask({ model: 'open', ...fields })).status).toBe(200);
  });

  it('return 400 also when their names are escaped', async () => {
    const text = '{"model":"chat","messages":[],"structured\\u005foutputs":{"re\\u0067ex":"a"}}';
    const answer = await bench.post(chatPath, text);
    expect(await errorOf(answer)).toMatchObject({ ...refused, param: 'structured_outputs.regex' });
  });

  it('are off for null, and other JSON formats are answered', async () => {
    for (const fields of [
      { structured_outputs: null },
      { structured_outputs: { regex: null, json_object: true } },
      { guided_regex: null },
      { response_format: { type: 'json_object' } },
      { response_format: { type: 'text' } },
      { response_format: null },
    ]) {
      expect((await ask(fields)).status).toBe(200);
    }
  });
});

describe('a field that vLLM has renamed', () => {
  it.each([
    ['guided_json', {}, 'structured_outputs.json'],
    ['guided_choice', ['a'], 'structured_outputs.choice'],
    ['guided_regex', 'a', 'structured_outputs.regex'],
    ['guided_grammar', 'root ::= "a"', 'structured_outputs.grammar'],
    ['guided_whitespace_pattern', ' ', 'structured_outputs.whitespace_pattern'],
    ['guided_decoding_backend', 'outlines', 'Omit it'],
    ['structural_tag', '{}', 'structured_outputs.structural_tag'],
  ])('returns 400 with its new name, since engines ignore it: %s', async (field, value, name) => {
    const error = await refusal({ [field]: value });
    expect(error).toMatchObject({ ...refused, param: field });
    expect(error.message).toContain(name);
    expect((await ask({ [field]: null })).status).toBe(200);
  });
});

describe('choices', () => {
  const many = (count: number): string[] => Array.from({ length: count }, (_, at) => `choice ${at}`);
  const ways: [string, string, (list: unknown) => object][] = [
    ['structured_outputs', 'structured_outputs.choice', (choice) => ({ structured_outputs: { choice } })],
    ['an enum', 'response_format.json_schema.schema', (list) => schemaFormat({ enum: list })],
  ];
  it.each(ways)('are limited to 1000 by default: %s', async (_, param, fields) => {
    const error = await refusal(fields(many(1001)));
    expect(error).toMatchObject({ ...refused, param });
    expect(error.message).toContain('1000');
    expect((await ask(fields(many(1000)))).status).toBe(200);
    const small = await refusal({ model: 'small', ...fields(many(4)) });
    expect(small).toMatchObject({ ...refused, param });
    expect(small.message).toContain('3');
  });

  it('are limited in total over several enums of a schema', async () => {
    const properties = { a: { enum: many(600) }, b: { items: { enum: many(600) } } };
    expect(await refusal(schemaFormat({ properties }))).toMatchObject(refused);
  });

  it('are limited in their total length', async () => {
    const long = Array.from({ length: 6 }, (_, at) => 'x'.repeat(10_000) + at);
    expect((await refusal({ structured_outputs: { choice: long } })).message).toContain('16384');
    expect((await refusal(schemaFormat({ enum: long }))).message).toContain('16384');
    expect((await refusal(schemaFormat({ enum: long.map((text) => ({ text })) }))).message).toContain('16384');
    expect((await ask(schemaFormat({ const: long[0], description: 'y'.repeat(20_000) }))).status).toBe(200);
  });
});

describe('a schema', () => {
  const ways: [string, string, (schema: unknown) => object][] = [
    ['response_format', 'response_format.json_schema.schema', schemaFormat],
    ['structured_outputs', 'structured_outputs.json', (json) => ({ structured_outputs: { json } })],
    [
      'structured_outputs as a text',
      'structured_outputs.json',
      (json) => ({ structured_outputs: { json: JSON.stringify(json) } }),
    ],
    [
      'a structural tag',
      'response_format',
      (schema) => ({
        response_format: {
          type: 'structural_tag',
          structures: [{ begin: '<a>', schema, end: '</a>' }],
          triggers: ['<a>'],
        },
      }),
    ],
    [
      'a tool that is required',
      'tools[0].function.parameters',
      (schema) => ({ tools: [tool(schema)], tool_choice: 'required' }),
    ],
    ['a strict tool', 'tools[0].function.parameters', (schema) => ({ tools: [tool(schema, { strict: true })] })],
    [
      'a tool that is named',
      'tools[0].function.parameters',
      (schema) => ({
        tools: [{ type: 'function', function: { name: 'f', parameters: schema } }],
        tool_choice: { type: 'function', function: { name: 'f' } },
      }),
    ],
  ];
  it.each(ways)('is limited in depth, properties and bytes: %s', async (_, param, fields) => {
    for (const [schema, number] of [
      [nested(17), '16'],
      [objectOf(names(501)), '500'],
      [{ description: 'x'.repeat(65_536) }, '65536'],
    ] as const) {
      const error = await refusal(fields(schema));
      expect(error).toMatchObject(refused);
      // A schema that is too long is rejected before it is read.
      expect(number === '65536' ? param.startsWith(error.param) : error.param === param).toBe(true);
      expect(error.message).toContain(number);
    }
    for (const schema of [nested(8), objectOf(names(500))]) {
      const answer = await ask(fields(schema));
      expect([answer.status, answer.status === 200 ? '' : await answer.text()]).toEqual([200, '']);
    }
  });

  it('has the limits of the engine file', async () => {
    const small = (schema: unknown): Promise<Body> => refusal({ model: 'small', ...schemaFormat(schema) });
    expect((await small(nested(4))).message).toContain('3');
    expect((await small(objectOf(names(5)))).message).toContain('4');
    expect((await small({ description: 'x'.repeat(900) })).message).toContain('900');
    expect((await ask({ model: 'small', ...schemaFormat(nested(3)) })).status).toBe(200);
  });

  it('has its properties counted everywhere, definitions under any name included', async () => {
    const half = objectOf(names(300));
    for (const schema of [
      { $defs: { a: half, b: half } },
      { anyOf: [half, half] },
      { 'x-anything': [[half], { deeper: half }] },
      { items: half, additionalProperties: half },
      { properties: { properties: half, enum: half } },
    ]) {
      expect((await refusal(schemaFormat(schema))).message).toContain('500');
    }
  });

  it('has nested lists counted as depth', async () => {
    let list: unknown[] = [];
    for (let depth = 0; depth < 40; depth += 1) list = [list];
    expect((await refusal(schemaFormat({ examples: list }))).message).toContain('16');
  });
});

describe('repetition in a schema', () => {
  const property = (schema: object): object => schemaFormat({ type: 'object', properties: { a: schema } });
  const pattern = (text: string): object => property({ type: 'string', pattern: text });

  it.each([
    ['[a-z]{0,10000}'],
    ['.{0,1000}'],
    ['([a-z]{0,30}){0,30}'],
    ['([a-z]?){100}'],
    ['(.{0,10}){0,10}'],
    ['(a{0,300}){0,300}'],
    ['.{0,20}.{0,20}.{0,20}.{0,20}.{0,20}'],
    ['^(?:(?:[^,]{0,20},){0,20})$'],
    ['(a|){0,9999}'],
    ['\\w{999999999999}'],
    ['\\d{129}'],
    ['.'.repeat(251)],
    ['[^a]'.repeat(3000)],
    ['(.+,)+'.repeat(500)],
    ['[a-z]*,'.repeat(2000)],
  ])('returns 400 for the pattern %.40s unless the engine file allows regex', async (text) => {
    for (const fields of [
      pattern(text),
      property({ patternProperties: { [text]: string } }),
      property({ propertyNames: { pattern: text } }),
    ]) {
      const error = await refusal(fields);
      expect(error).toMatchObject({ ...refused, param: 'response_format.json_schema.schema' });
      expect(error.message).toContain('pattern');
      expect((await ask({ model: 'open', ...fields })).status).toBe(200);
    }
  });

  it.each([
    ['^[A-Z]{2}-\\d{4}$'],
    ['^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12})$'],
    ["^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"],
    ['^\\d{4}-(?:0[1-9]|1[0-2])-\\d{2}T(?:[01]\\d|2[0-3]):[0-5]\\d(?::[0-5]\\d(?:\\.\\d+)?)?Z$'],
    ['^(([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|([0-9a-f]{1,4}:){1,7}:|([0-9a-f]{1,4}:){1,6}:[0-9a-f]{1,4})$'],
    ['^((25[0-5]|2[0-4]\\d|[01]?\\d\\d?)\\.){3}(25[0-5]|2[0-4]\\d|[01]?\\d\\d?)$'],
    ['^[a-zA-Z0-9_-]{1,64}$'],
    ['^.{1,128}$'],
    ['[{}]{2}\\{\\}'],
    ['draft|review|published|archived|withdrawn'.repeat(5)],
  ])('accepts the pattern %s, also many times', async (text) => {
    expect((await ask(pattern(text))).status).toBe(200);
    const properties = Object.fromEntries(names(50).map((name) => [name, { type: 'string', pattern: text }]));
    expect((await ask(schemaFormat({ type: 'object', properties }))).status).toBe(200);
  });

  it.each([['{"pattern":"[^a]{0,999}","x":NaN}'], ['{"pattern":"[^a]{0,999}"} x'], ['{'], ['']])(
    'returns 400 for a schema that is the text %s',
    async (json) => {
      const error = await refusal({ structured_outputs: { json } });
      expect(error).toMatchObject({ ...refused, param: 'structured_outputs.json' });
    },
  );

  it('returns 400 for many costly formats, and accepts the usual ones', async () => {
    const formats = (count: number, format: string): object =>
      schemaFormat({ type: 'array', prefixItems: Array.from({ length: count }, () => ({ type: 'string', format })) });
    expect((await refusal(formats(21, 'uri-template'))).message).toContain('formats');
    expect((await refusal(formats(1400, 'unheard-of'))).message).toContain('formats');
    expect((await ask(formats(20, 'uri-template'))).status).toBe(200);
    for (const format of ['date-time', 'email', 'uri', 'uuid']) {
      expect((await ask(formats(500, format))).status).toBe(200);
    }
  });

  it('returns 400 for many different lengths, and accepts the usual ones', async () => {
    const lengths = (count: number, step: number): object =>
      schemaFormat({
        properties: Object.fromEntries(names(count).map((name, at) => [name, { maxLength: 100 + at * step }])),
      });
    expect((await refusal(lengths(100, 1))).message).toContain('maxLength');
    expect((await ask(lengths(16, 100))).status).toBe(200);
    expect((await ask(lengths(300, 0))).status).toBe(200);
  });

  it('returns 400 for counting the properties of large objects', async () => {
    for (const more of [{ minProperties: 2 }, { maxProperties: 9 }]) {
      expect((await refusal(schemaFormat(objectOf(names(100), more)))).message).toContain('minProperties');
      expect((await ask(schemaFormat(objectOf(names(20), more)))).status).toBe(200);
    }
  });

  it('is counted in a structural tag too', async () => {
    const format = { type: 'repeat', min: 0, max: 5000, content: { type: 'const_string', value: 'a' } };
    expect(await refusal({ response_format: { type: 'structural_tag', format } })).toMatchObject(refused);
  });
});

describe('tools', () => {
  it('pass unchecked when no grammar is built from them', async () => {
    const tools = [tool(objectOf(names(600))), tool({ pattern: '([a-z]{0,30}){0,30}' })];
    expect((await ask({ tools, tool_choice: 'none' })).status).toBe(200);
    expect((await ask({ model: 'chat', tools: tools.slice(1), tool_choice: 'auto' })).status).not.toBe(500);
  });

  it('may together have four times the properties of one schema', async () => {
    const tools = (count: number): object[] => names(count).map(() => tool(objectOf(names(400))));
    expect((await ask({ tools: tools(5), tool_choice: 'required' })).status).toBe(200);
    const error = await refusal({ tools: tools(6), tool_choice: 'required' });
    expect(error).toMatchObject({ ...refused, param: 'tools[5].function.parameters' });
    expect(error.message).toContain('2000');
  });

  it('are strict for each name and value that the engine accepts as strict', async () => {
    const parameters = '{"pattern":"([a-z]{0,30}){0,30}"}';
    const text = (strict: string): string =>
      `{"model":"chat","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f",${strict},"parameters":${parameters}}}]}`;
    for (const strict of ['"strict":true', '"strict" : 1', '"strict":"true"', '"str\\u0069ct":true']) {
      const error = await errorOf(await bench.post(chatPath, text(strict)));
      expect(error).toMatchObject({ ...refused, param: 'tools[0].function.parameters' });
    }
    for (const strict of ['"strict":false', '"strict":null', '"description":"\\u0061 \\u00e9"']) {
      expect((await bench.post(chatPath, text(strict))).status).toBe(200);
    }
  });

  it('may be 256 KiB long in total when a grammar is built from them, else as long as a prompt', async () => {
    const tools = names(9).map(() => tool({}, { description: 'x'.repeat(30_000) }));
    const error = await refusal({ tools, tool_choice: 'required' });
    expect(error).toMatchObject({ ...refused, param: 'tools' });
    expect(error.message).toContain('262144');
    expect((await ask({ tools })).status).toBe(200);
  });

  it('return 400 with a grammar of their own', async () => {
    const custom = { type: 'custom', custom: { name: 'c', format: { type: 'grammar', grammar: { syntax: 'lark' } } } };
    expect(await refusal({ tools: [custom], tool_choice: 'required' })).toMatchObject({
      ...refused,
      param: 'tools[0]',
    });
  });
});
