import { AppError, type ErrorCode } from '#base/errors.ts';
import { halfPair } from '#edge/inference/surrogates.ts';
import type { SentRequest } from './sent-request.ts';
import { validationProblem } from './validation-errors.ts';

/**
 * Rewrites an engine's error in Headgate's own words. Only numbers and the name of the request's field are kept: the
 * engine's text quotes prompts, names its modules and paths, and changes from version to version.
 */

interface Refusal {
  readonly code: ErrorCode;
  readonly message: string;
  readonly param: string | null;
}

interface Pattern {
  readonly matches: RegExp;
  readonly refuse: (found: RegExpExecArray, param: string | null, sent: SentRequest) => Refusal;
}

const unsupported = (message: string, param: string): Refusal => ({ code: 'unsupported_parameter', message, param });

const wrong = (message: string, param: string | null): Refusal => ({ code: 'invalid_value', message, param });

/** The first pattern that matches is used. */
const patterns: readonly Pattern[] = [
  {
    matches:
      /maximum context length is (\d+) tokens\. However, you requested (\d+) output tokens and your prompt contains at least (\d+)/,
    refuse: ([, limit, output, input], _, sent) => {
      const name = sent.longText(Number(limit));
      const overContext = sent.overContext({ limit: Number(limit), input: Number(input), output: Number(output) });
      if (overContext !== null) return { param: sent.inputKey, code: 'context_length_exceeded', message: overContext };
      return {
        param: name ?? sent.inputKey,
        code: 'context_length_exceeded',
        // An embedding asks for no output tokens.
        message:
          output === '0'
            ? `This model's context holds ${limit} tokens; ${name === null ? 'the input' : nameOf(name)} has at least ${input}. Shorten the input.`
            : `This model's context holds ${limit} tokens; the request has at least ${input} input tokens and asks for ${output} output tokens. Shorten the input or request fewer output tokens.`,
      };
    },
  },
  {
    matches: /^(?:max_tokens|max_completion_tokens)=(\d+) cannot be greater than \w+=(?:\w+=)?(\d+)/,
    refuse: ([, asked, limit], param, sent) => ({
      code: 'context_length_exceeded',
      message:
        sent.overContext({ limit: Number(limit), input: 0, output: Number(asked) }) ??
        `This model's context holds ${limit} tokens; the request asks for ${asked} output tokens.`,
      param: param ?? 'max_tokens',
    }),
  },
  {
    matches: /maximum context length(?: is)? (\d+)/i,
    refuse: ([, limit], _, sent) => {
      const name = sent.longText(Number(limit));
      const what = name === null ? 'The request' : nameOf(name);
      const message =
        sent.overContext({ limit: Number(limit), input: Number(limit) + 1, output: 0 }) ??
        `${what} is longer than this model's context of ${limit} tokens.`;
      return { code: 'context_length_exceeded', message, param: name ?? sent.inputKey };
    },
  },
  {
    matches: /tool choice requires|tool-call-parser/,
    refuse: () => unsupported('This model does not support tool calls.', 'tools'),
  },
  {
    // vLLM has generated the call before it finds out. A repetition may go well.
    matches: /validation error for AnthropicContentBlock\s+input\s/,
    refuse: () => ({
      code: 'upstream_error',
      message: 'The model called a tool with arguments that are not an object. Send the request again.',
      param: null,
    }),
  },
  {
    matches: /is not a multimodal model|does not support (?:image|video|audio)|At most 0 \w+/,
    refuse: () => unsupported('This model reads text only.', 'messages'),
  },
  {
    matches: /does not support Matryoshka/,
    refuse: () => unsupported('This model supports only one embedding size. Omit "dimensions".', 'dimensions'),
  },
  {
    matches: /chat template .*--trust-request-chat-template/,
    refuse: () => unsupported('"chat_template" is not supported for this model.', 'chat_template'),
  },
  {
    matches: /suffix is not currently supported/,
    refuse: () => unsupported('"suffix" is not supported for this model.', 'suffix'),
  },
  {
    matches: /empty conversation|pass at least one prompt|prompt cannot be empty|must be provided and non-empty/,
    refuse: (_, __, sent) => {
      const name = sent.emptyText;
      if (name !== null) return wrong(`${nameOf(name)} is empty.`, name);
      return wrong('The request has no input. Send at least one message or prompt.', sent.inputKey);
    },
  },
  {
    matches:
      /^Grammar error|[Ii]nvalid grammar specification|(?:grammar|schema|regex).*(?:invalid|compile|unsupported)/i,
    refuse: (_, __, sent) =>
      wrong('The schema or grammar for the response is not valid.', sent.grammarKey ?? 'response_format'),
  },
  {
    // The offset is in the body that the engine got.
    matches: /'type': 'json_invalid', 'loc': \('body', \d+\)/,
    refuse: (_, __, sent) => brokenJson(sent) ?? notJson(sent),
  },
  {
    matches: /'type': 'missing', 'loc': \('body',\)/,
    refuse: () => ({ code: 'invalid_request_error', message: 'The request body is missing.', param: null }),
  },
  {
    matches: /^Requested sample logprobs of -?\d+, which is greater than max allowed: (\d+)/,
    refuse: ([, limit], param, sent) => {
      const name = sent.has('top_logprobs') ? 'top_logprobs' : (param ?? 'logprobs');
      return wrong(`"${name}" must be from 0 to ${limit}.`, name);
    },
  },
  {
    matches: /^when using `top_logprobs`, `logprobs` must be set/,
    refuse: () => wrong('"top_logprobs" requires "logprobs": true.', 'top_logprobs'),
  },
  {
    matches: /^`tools` must not be an empty array/,
    refuse: () => wrong('"tools" is empty. Send at least one tool, or omit the field.', 'tools'),
  },
  {
    matches: /^When using `tool_choice`, `tools` must be set/,
    refuse: () => wrong('"tool_choice" requires "tools". Send the tools, or omit "tool_choice".', 'tool_choice'),
  },
  {
    matches: /^Invalid value for `tool_choice`/,
    refuse: () => wrong('"tool_choice" must be "none", "auto" or "required", or name one of "tools".', 'tool_choice'),
  },
  {
    matches: /does not match any of the specified `tools`/,
    refuse: () => wrong('"tool_choice" names a function that is not in "tools".', 'tool_choice'),
  },
  {
    matches: /'json_schema' field must be provided/,
    refuse: () => ({
      code: 'invalid_request_error',
      message: 'The field "response_format.json_schema" is missing.',
      param: 'response_format.json_schema',
    }),
  },
  {
    matches: /^Choice '.*' cannot be an empty list/s,
    refuse: () => wrong('"structured_outputs.choice" is empty. Send at least one choice.', 'structured_outputs.choice'),
  },
  {
    matches: /^You must use one kind of structured outputs constraint/,
    refuse: () => wrong(`"structured_outputs" requires one of ${constraintNames}.`, 'structured_outputs'),
  },
  {
    matches: /^You can only use one kind of constraints? for structured outputs/,
    refuse: () => wrong(`"structured_outputs" may have only one of ${constraintNames}.`, 'structured_outputs'),
  },
  {
    matches: /continue_final_message.*add_generation_prompt/s,
    refuse: () =>
      wrong(
        '"continue_final_message" cannot be used with "add_generation_prompt", which is true by default.',
        'continue_final_message',
      ),
  },
  {
    matches: /for ValidatorIterator/,
    refuse: (_, __, sent) => wrong('A part of a message has a format that this model does not support.', sent.inputKey),
  },
  {
    matches: /^Unsupported chat content part type: '(\w{1,64})'/,
    refuse: ([, type], _, sent) =>
      wrong(`A part of a message has the type "${type}", which is not supported.`, sent.inputKey),
  },
  {
    matches: /^TextEncodeInput must be|surrogates not allowed/,
    refuse: (_, __, sent) => {
      const name = sent.findHalfPair() ?? sent.inputKey;
      return wrong(`${nameOf(name)} ${halfPair}`, name);
    },
  },
  {
    matches: /out[- ]of[- ]vocab/,
    refuse: (_, param, sent) => {
      const name = param ?? sent.inputKey;
      return wrong(`${nameOf(name)} has a token id that is not in this model's vocabulary.`, name);
    },
  },
  {
    matches: /cannot be converted to integer token IDs/,
    refuse: (_, param) => wrong(`The keys of ${nameOf(param)} must be token ids.`, param),
  },
  {
    matches: /^(\w+) is not None and empty/,
    refuse: ([, name = '']) => wrong(`"${name}" is empty. Send at least one item, or omit the field.`, name),
  },
  {
    matches: /^top_k must be 0 \(disable\), or at least 1/,
    refuse: () => wrong('"top_k" must be at least 1, or 0 for no limit.', 'top_k'),
  },
  {
    matches: /^truncate_prompt_tokens(?:=\d+ cannot be greater than max_model_len[^=]*= (\d+)| value is greater)/,
    refuse: ([, limit]) => {
      const most = limit === undefined ? "this model's context" : limit;
      return wrong(`"truncate_prompt_tokens" may be at most ${most}.`, 'truncate_prompt_tokens');
    },
  },
  {
    matches: /^(\w+) must be a non-negative integer/,
    refuse: ([, name = '']) => wrong(`"${name}" must be a whole number, 0 or more.`, name),
  },
  {
    matches: /^(?:Parameter )?`(\w+)` was removed/,
    refuse: ([, name = '']) => unsupported(`"${name}" is no longer supported by this model.`, name),
  },
  {
    matches: /^`(\w+)` must be an integer/,
    refuse: ([, name = '']) => wrong(`"${name}" must be a whole number.`, name),
  },
  {
    matches: /^Input lengths must be either 1:1, 1:N or N:N/,
    refuse: (_, __, { sentInputs: [one, other] }) =>
      wrong(
        `${nameOf(one ?? null)} must be one text, or as many texts as ${nameOf(other ?? null)}.`,
        other ?? one ?? null,
      ),
  },
  {
    matches: /^At least one (text|text_pair) element must be given/,
    refuse: ([, which], _, { sentInputs: [one = null, other = one] }) => {
      const name = which === 'text' ? one : other;
      return wrong(`${nameOf(name)} is empty. Send at least one text.`, name);
    },
  },
  {
    matches: /greater than max allowed: (\d+)/,
    refuse: ([, limit], param) => wrong(`${nameOf(param)} may be at most ${limit}.`, param),
  },
  {
    matches: /^(n) must be at least (\d+), got (-?\d+)/,
    refuse: ([, name = 'n', limit]) => wrong(`"${name}" must be at least ${limit}.`, name),
  },
  {
    matches: /must be (?:at least|greater than or equal to) (-?\d+(?:\.\d+)?), got -?\d/,
    refuse: ([, limit], param) => wrong(`${nameOf(param)} must be at least ${limit}.`, param),
  },
  {
    matches: /^n must be 1 when using greedy sampling/,
    refuse: () => ({ code: 'invalid_value', message: '"n" must be 1 when "temperature" is 0.', param: 'n' }),
  },
  {
    matches: /must be in ([[(])(-?[\d.]+), (-?[\d.]+)\]/,
    refuse: ([, open, low, high], param) =>
      wrong(`${nameOf(param)} must be ${open === '(' ? 'above' : 'at least'} ${low} and at most ${high}.`, param),
  },
  {
    matches: /must be greater than zero/,
    refuse: (_, param) => wrong(`${nameOf(param)} must be above 0.`, param),
  },
  {
    matches: /^min_tokens must be less than or equal to max_tokens=(\d+)/,
    refuse: ([, limit]) => wrong(`"min_tokens" may be at most the output limit of ${limit}.`, 'min_tokens'),
  },
  {
    matches: /cannot contain an empty string/,
    refuse: (_, param) => wrong(`${nameOf(param)} must not contain an empty string.`, param),
  },
  {
    matches: /must be non-negative, got (-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)/,
    refuse: ([, value], param) => wrong(`${nameOf(param)} must not be negative; it is ${value}.`, param),
  },
  {
    matches: /Stream options can only be defined/,
    refuse: () => wrong('"stream_options" requires "stream": true.', 'stream_options'),
  },
];

const constraintNames = 'json, regex, choice, grammar, json_object and structural_tag';

const nameOf = (param: string | null): string => (param === null ? 'A value' : `"${param}"`);

const safeParam = /^[A-Za-z_][A-Za-z0-9_]{0,63}(?:[.[][A-Za-z0-9_\]]{1,64}){0,8}$/;
/** Internal names that an engine puts before a field's name, or in its place. */
const innerParam = /^(?:body|input_tokens|function|value_error)\b/;

interface EngineErrorBody {
  readonly message: string;
  readonly param: string | null;
}

function stringOf(value: unknown): string | null {
  return typeof value === 'string' ? value : null;
}

/** Reads vLLM's error envelope. Other shapes, such as those of its web server, give an empty message. */
function readErrorBody(text: string): EngineErrorBody {
  try {
    const body: unknown = JSON.parse(Buffer.from(text, 'latin1').toString('utf8'));
    const error: unknown = typeof body === 'object' && body !== null ? Reflect.get(body, 'error') : null;
    if (typeof error !== 'object' || error === null) return { message: '', param: null };
    return {
      message: stringOf(Reflect.get(error, 'message')) ?? '',
      param: fieldName(stringOf(Reflect.get(error, 'param'))),
    };
  } catch {
    return { message: '', param: null };
  }
}

function fieldName(param: string | null): string | null {
  if (param === null) return null;
  const name = param.replace(/^body\./, '');
  return safeParam.test(name) && !innerParam.test(name) ? name : null;
}

/**
 * Returns the parameter at the beginning of the message. Most of vLLM's checks of sampling parameters name it only
 * there.
 */
function leadingParam(message: string): string | null {
  return /^([a-z][a-z_]{0,63}) (?:must|cannot)\b/.exec(message)?.[1] ?? null;
}

/** Returns the client's name for the output limit, which vLLM knows by one name only. */
function asSent(param: string | null, sent: SentRequest): string | null {
  return param === 'max_tokens' ? (sent.limitKey ?? param) : param;
}

/**
 * Converts an engine's rejection of an invalid request, with the field in `param`.
 * @param text body of the engine's answer, as latin1
 */
export function engineRefusal(text: string, sent: SentRequest): AppError {
  const { message, param } = readErrorBody(text);
  const problem = validationProblem(message, sent);
  if (problem !== null) {
    const { says, isMissing } = problem;
    const name = sent.nameInWhole(problem.param);
    if (isMissing) return toError('invalid_request_error', `The field "${name}" is missing.`, name);
    const reason = says.startsWith('is not') ? notValid(name) : `"${name}" ${says}.`;
    return toError('invalid_value', reason + sent.placeInWhole(name), name);
  }
  const field = asSent(param ?? leadingParam(message), sent);
  for (const { matches, refuse } of patterns) {
    const found = matches.exec(message);
    if (found === null) continue;
    const refusal = refuse(found, field, sent);
    return toError(refusal.code, refusal.message + sent.placeInWhole(refusal.param), refusal.param);
  }
  if (field === null) {
    const { code, message: reason, param: name } = brokenJson(sent) ?? refused;
    return toError(code, reason, name);
  }
  const name = sent.nameInWhole(field);
  return toError('invalid_value', notValid(name) + sent.placeInWhole(name), name);
}

/** Returns the syntax error of a body, with its offset in the client's body; null if there is none. */
function brokenJson(sent: SentRequest): Refusal | null {
  const mistake = sent.findMistake();
  if (mistake === null) return null;
  const message = `The request body is not valid JSON at byte ${mistake.offset}: ${mistake.reason}.`;
  return { code: 'invalid_request_error', message, param: null };
}

function notJson({ splitKey: param }: SentRequest): Refusal {
  const message = param === null ? 'The request body is not valid JSON.' : `The value of "${param}" is not valid JSON.`;
  return { code: 'invalid_request_error', message, param };
}

const refused: Refusal = {
  code: 'invalid_request_error',
  message: 'The model rejected this request as invalid.',
  param: null,
};

const notValid = (name: string): string => `The value of "${name}" is not valid for this model.`;

function toError(code: ErrorCode, message: string, param: string | null): AppError {
  return new AppError(code, { message, ...(param !== null && { param }) });
}
