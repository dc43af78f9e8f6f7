import { readPrompts } from './completions.ts';
import { readPrompt } from './conversation.ts';
import { badRequest, ENGINE_DEAD, invalidBody, refusal, tooLong, type Finding, type Refused } from './errors.ts';
import { randomHex, type Exchange } from './http.ts';
import { mergeKnobs } from './knobs.ts';
import { observe } from './metrics.ts';
import { checkModel, type Body } from './params.ts';
import { createRandom } from './prose.ts';
import { repr } from './python.ts';
import type { Engine, OpenAnswer } from './run.ts';
import type { PromptScan } from './tokenizer.ts';

const PLACE = 'function-wrap[__log_extra_fields__()]';
const FORMATS = ['float', 'base64', 'bytes', 'bytes_only'];

/** vLLM tries seven request shapes on a body and reports the fields that each of them misses. */
function missingInput(body: Body): Refused {
  const fields = ['input', 'messages', 'messages', 'messages', 'input', 'messages', 'input'];
  const findings = fields.map((field) => ({
    type: 'missing',
    loc: ['body', PLACE, field],
    msg: 'Field required',
    input: body,
  }));
  return invalidBody(findings, 'body.input');
}

function wrongFormat(body: Body, input: unknown): Refused {
  const expected = "'float', 'base64', 'bytes' or 'bytes_only'";
  const literal: Finding = {
    type: 'literal_error',
    loc: ['body', PLACE, 'encoding_format'],
    msg: `Input should be ${expected}`,
    input: body.encoding_format,
    ctx: { expected },
  };
  const missing: Finding = { type: 'missing', loc: ['body', PLACE, 'messages'], msg: 'Field required', input: body };
  const findings = [literal, literal, missing, literal, missing, literal, missing];
  const loc = ['body', PLACE, 'input'];
  if (typeof input === 'string') findings.push({ type: 'list_type', loc, msg: 'Input should be a valid list', input });
  findings.push(literal, missing);
  if (typeof input === 'string') {
    const msg = "'str' instances are not allowed as a Sequence value";
    findings.push({ type: 'sequence_str', loc, msg, input, ctx: { type_name: 'str' } });
  }
  return invalidBody(findings, 'body.encoding_format');
}

/** A unit vector made only of the prompt: equal texts are equally far from everything. */
function vectorOf(scan: PromptScan, length: number): Float32Array {
  const random = createRandom(scan.hash);
  const vector = new Float32Array(length);
  let squares = 0;
  for (let index = 0; index < length; index += 1) {
    const value = (random() / 0x1_0000_0000) * 2 - 1;
    vector[index] = value;
    squares += value * value;
  }
  const norm = Math.sqrt(squares) || 1;
  return vector.map((value) => value / norm);
}

function promptsOf(body: Body, engine: Engine): PromptScan[] | Refused {
  if (Array.isArray(body.messages)) {
    const prompt = readPrompt(body.messages, engine);
    return 'status' in prompt ? prompt : [prompt.scan];
  }
  const prompts = readPrompts(body.input, engine.options.blockSize);
  if (prompts === null) return missingInput(body);
  if (prompts.length === 0) return badRequest('You must pass at least one prompt');
  return prompts.map((prompt) => prompt.scan);
}

function dimensionsOf(body: Body, engine: Engine): number | Refused {
  const { options } = engine;
  const wanted = body.dimensions;
  if (wanted === undefined || wanted === null) return options.embeddingDimensions;
  if (!options.matryoshka) {
    const name = options.servedNames[0] ?? '';
    return badRequest(
      `Model '${name}' does not support Matryoshka embeddings; dimensions must be unset (received dimensions=${repr(wanted)}).`,
    );
  }
  if (typeof wanted === 'number' && Number.isInteger(wanted) && wanted >= 1) return wanted;
  return badRequest('dimensions must be greater than 0', 'dimensions', repr(wanted));
}

interface Accepted {
  scans: PromptScan[];
  dimensions: number;
  format: string;
}

function accept(body: Body, engine: Engine): Accepted | Refused {
  const { input, encoding_format: encoding } = body;
  if (input === undefined && body.messages === undefined) return missingInput(body);
  const format = typeof encoding === 'string' ? encoding : 'float';
  if (!FORMATS.includes(format) || (encoding !== undefined && encoding !== null && typeof encoding !== 'string')) {
    return wrongFormat(body, input);
  }
  const unknown = checkModel(body, engine.options);
  if (unknown !== null) return refusal(404, 'NotFoundError', `The model \`${unknown}\` does not exist.`, 'model');
  const dimensions = dimensionsOf(body, engine);
  if (typeof dimensions !== 'number') return dimensions;
  const scans = promptsOf(body, engine);
  if ('status' in scans) return scans;
  for (const scan of scans) {
    if (scan.count === 0) return badRequest('The decoder prompt cannot be empty');
    if (scan.count > engine.options.maxModelLen) return tooLong(engine.options.maxModelLen, 0);
  }
  return { scans, dimensions, format };
}

function bytesOf(vector: Float32Array): Buffer {
  return Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength);
}

function respond(given: { engine: Engine; exchange: Exchange; accepted: Accepted }): void {
  const { engine, exchange, accepted } = given;
  const vectors = accepted.scans.map((scan) => vectorOf(scan, accepted.dimensions));
  const tokens = accepted.scans.reduce((sum, scan) => sum + scan.count, 0);
  const usage = `{"prompt_tokens":${tokens},"total_tokens":${tokens},"completion_tokens":0,"prompt_tokens_details":null,"completion_tokens_details":null}`;
  const id = `embd-${exchange.requestId ?? randomHex()}`;
  const created = Math.floor(Date.now() / 1000);
  const head = `{"id":${JSON.stringify(id)},"object":"list","created":${created},"model":${JSON.stringify(engine.options.servedNames[0] ?? '')}`;
  const { metrics } = engine;
  metrics.promptTokens += tokens;
  metrics.prefixQueries += tokens;
  metrics.finished.stop += vectors.length;
  for (const scan of accepted.scans) observe(metrics.requestPromptTokens, scan.count);
  if (accepted.format === 'bytes' || accepted.format === 'bytes_only') {
    const extra = accepted.format === 'bytes' ? ['metadata', `${head},"data":[],"usage":${usage}}`] : [];
    exchange.send(200, 'application/octet-stream', Buffer.concat(vectors.map(bytesOf)), extra);
    return;
  }
  const data = vectors.map((vector, index) => {
    const printed = accepted.format === 'base64' ? `"${bytesOf(vector).toString('base64')}"` : `[${vector.join(',')}]`;
    return `{"index":${index},"object":"embedding","embedding":${printed}}`;
  });
  exchange.json(200, `${head},"data":[${data.join(',')}],"usage":${usage}}`);
}

/** Answers POST /v1/embeddings. */
export function answerEmbedding(engine: Engine, exchange: Exchange, body: Body): void {
  const accepted = accept(body, engine);
  if ('status' in accepted) exchange.json(accepted.status, accepted.body);
  else answerWhole(engine, exchange, body, () => respond({ engine, exchange, accepted }));
}

/** Gives an answer that has no tokens to break at, so a fault comes in its place. */
export function answerWhole(engine: Engine, exchange: Exchange, body: Body, give: () => void): void {
  const knobs = mergeKnobs(engine.options.knobs, body.standin);
  if (knobs.cut_after !== undefined) {
    exchange.destroy();
    return;
  }
  const fail = (message: string): void => {
    close();
    const refused = refusal(500, 'InternalServerError', message);
    exchange.json(refused.status, refused.body);
  };
  const open: OpenAnswer = { die: () => fail(ENGINE_DEAD), cutStream: () => undefined };
  const finish = (): void => {
    if (knobs.error_after !== undefined) {
      fail('Internal server error');
      return;
    }
    close();
    give();
  };
  let timer: NodeJS.Timeout | undefined;
  const close = (): void => {
    clearTimeout(timer);
    engine.runs.delete(open);
  };
  engine.runs.add(open);
  exchange.onGone(close);
  if (knobs.hang !== undefined) return;
  if (knobs.ttft_ms === undefined || knobs.ttft_ms === 0) finish();
  else timer = setTimeout(finish, knobs.ttft_ms);
}
