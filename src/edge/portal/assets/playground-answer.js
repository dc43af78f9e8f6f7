import { action, copyText, element } from './playground-dom.js';
import { AnswerText } from './playground-markdown.js';

/** Shows one answer of a model with its numbers. */

/**
 * @typedef {import('./playground-models.js').Model} Model
 * @typedef {import('./playground-models.js').Price} Price
 * @typedef {{ id: string, type: 'function', function: { name: string, arguments: string } }} ToolCall
 * @typedef {{ prompt_tokens: number, completion_tokens: number, prompt_tokens_details?: { cached_tokens?: number | null } | null }} Usage
 * @typedef {{ delta?: { content?: string | null, refusal?: string | null, reasoning?: string | null, reasoning_content?: string | null, tool_calls?: { index: number, id?: string | undefined, function?: { name?: string | undefined, arguments?: string } }[] | null }, finish_reason?: string | null }} Choice
 * @typedef {{ state: string, numbers: string, requestId: string | null, isRecorded: boolean, hasFailed: boolean, isComplete: boolean }} End How an answer ended.
 * @typedef {End & { content: string, reasoning: string, calls: ToolCall[] }} KeptAnswer
 * @typedef {{ choices?: Choice[], usage?: Usage | null, error?: { message: string }, cost?: string | undefined, isLast?: boolean }} Frame A chunk of Chat Completions. `cost`: exact, in USD. `isLast`: the stream ends with it.
 */

/**
 * @param {string} decimal USD per million tokens. Its number of micro-dollars is the number of pico-dollars per token.
 */
function picoPerToken(decimal) {
  const [whole = '0', fraction = ''] = decimal.split('.');
  return BigInt(whole + fraction.padEnd(6, '0'));
}

/** @param {bigint} pico */
function usd(pico) {
  const digits = pico.toString().padStart(13, '0');
  const fraction = digits.slice(-12).replace(/0+$/, '').padEnd(2, '0');
  return `$${digits.slice(0, -12)}.${fraction}`;
}

/**
 * @param {Usage} usage
 * @param {Price} price
 */
function costOf({ prompt_tokens: input, completion_tokens: output, prompt_tokens_details: details }, price) {
  const cached = Math.min(input, details?.cached_tokens ?? 0);
  return (
    BigInt(input - cached) * picoPerToken(price.input_per_million) +
    BigInt(cached) * picoPerToken(price.cached_input_per_million) +
    BigInt(output) * picoPerToken(price.output_per_million)
  );
}

/** One answer of a model, with its numbers. */
export class AnswerView {
  /**
   * @param {Model} model
   * @param {{ isPlain: boolean, engines: string | undefined }} options `engines`: path of the pages of engines, for
   * operators only
   */
  constructor(model, { isPlain, engines }) {
    this.model = model;
    this.engines = engines;
    this.root = element('article', 'answer');
    this.state = element('p', 'answer-state');
    this.progress = document.createElement('progress');
    this.progress.hidden = true;
    this.progress.ariaLabel = `Start of ${model.id}`;
    this.reasoning = element('details', 'reasoning');
    this.reasoningText = element('pre', '');
    this.reasoningText.tabIndex = 0;
    this.reasoning.append(element('summary', '', 'Reasoning'), this.reasoningText);
    this.reasoning.hidden = true;
    this.text = new AnswerText(isPlain);
    this.tools = element('div', 'tool-calls');
    this.numbers = element('p', 'answer-numbers');
    this.root.append(element('h2', '', model.id), this.state, this.progress, this.reasoning);
    this.root.append(this.text.root, this.tools, this.numbers);
    // Both change many times in a second. The end of the answer is read out.
    this.numbers.ariaLive = 'off';
    this.state.ariaLive = 'off';
    /** By the index that the model gives. @type {Map<number, ToolCall>} */
    this.calls = new Map();
    this.isCut = false;
    this.startedMs = performance.now();
    /** @type {number | null} */
    this.firstMs = null;
    /** @type {Usage | null} */
    this.usage = null;
    /** @type {string | null} */
    this.cost = null;
    /** The error message in the stream. @type {string | null} */
    this.failure = null;
    /** @type {string | null} */
    this.requestId = null;
    /** @type {End | null} */
    this.ended = null;
  }

  /** Shows the progress while the engine starts. */
  wait() {
    if (this.firstMs !== null) return;
    const seconds = (performance.now() - this.startedMs) / 1000;
    const { status, expectedSeconds: expected } = this.model;
    const sofar = `${seconds.toFixed(0)} s so far`;
    if (status === 'ready' || expected === null) {
      this.state.textContent = `Waiting for the first token, ${sofar}`;
      this.progress.hidden = true;
      return;
    }
    this.state.textContent = `${status === 'starting' ? 'The engine is starting' : 'Starting the cold engine'}: ${sofar}, about ${Math.ceil(expected)} s expected`;
    this.progress.hidden = false;
    this.progress.max = Math.max(expected, 1);
    this.progress.value = Math.min(seconds, expected);
  }

  /** @param {Frame} frame */
  take(frame) {
    if (frame.error !== undefined) this.failure = frame.error.message;
    this.usage = frame.usage ?? this.usage;
    this.cost = frame.cost ?? this.cost;
    for (const { delta, finish_reason: reason } of frame.choices ?? []) {
      if (delta !== undefined) this.#takeDelta(delta);
      if (reason === 'length') this.isCut = true;
    }
    this.showNumbers();
  }

  /** @param {NonNullable<Choice['delta']>} delta */
  #takeDelta({ reasoning, reasoning_content: older, content, refusal, tool_calls: calls }) {
    const thought = reasoning ?? older ?? '';
    const said = [content, refusal].join('');
    const called = calls ?? [];
    if (thought !== '') {
      this.reasoning.hidden = false;
      this.reasoningText.append(thought);
    }
    if (said !== '') this.text.append(said);
    for (const call of called) this.#takeCall(call);
    if (called.length > 0) this.#showCalls(false);
    if (this.firstMs === null && (thought !== '' || said !== '' || called.length > 0)) this.#start();
  }

  #start() {
    this.firstMs = performance.now();
    this.state.textContent = '';
    this.progress.hidden = true;
  }

  /** @param {{ index: number, id?: string | undefined, function?: { name?: string | undefined, arguments?: string } }} delta */
  #takeCall({ index, id, function: called }) {
    const call = this.calls.get(index) ?? { id: '', type: 'function', function: { name: '', arguments: '' } };
    this.calls.set(index, call);
    call.id = id ?? (call.id === '' ? `call-${index}` : call.id);
    call.function.name += called?.name ?? '';
    call.function.arguments += called?.arguments ?? '';
  }

  /** @param {boolean} isComplete */
  #showCalls(isComplete) {
    this.tools.replaceChildren(...[...this.calls.values()].map((call) => callView(call, isComplete)));
  }

  /**
   * Uses the cost that the gateway sends, or computes it from the price if the answer ended before the gateway sent it.
   */
  #cost() {
    if (this.cost !== null) return `$${padded(this.cost)}`;
    return this.usage === null || this.model.price === null ? null : usd(costOf(this.usage, this.model.price));
  }

  showNumbers() {
    const parts = [];
    const now = performance.now();
    if (this.firstMs !== null) parts.push(`first token after ${((this.firstMs - this.startedMs) / 1000).toFixed(2)} s`);
    // Only the record knows what was generated and cached until an early end.
    const isKnown = this.cost !== null || this.root.dataset['ended'] !== 'early';
    if (this.usage !== null && isKnown) {
      const { prompt_tokens: input, completion_tokens: output } = this.usage;
      if (this.firstMs !== null && output > 1 && now > this.firstMs) {
        parts.push(`${speed((output - 1) / ((now - this.firstMs) / 1000))}`);
      }
      parts.push(`${input} in, ${output} out`);
      const cost = this.#cost();
      if (cost !== null) parts.push(this.root.dataset['ended'] === undefined ? `${cost} so far` : `cost ${cost}`);
    }
    if (this.isCut) parts.push('cut at the limit of output tokens');
    this.numbers.textContent = parts.join(' · ');
  }

  /**
   * @param {string} state the error message, or '' if the answer is complete
   * @param {boolean} isRecorded
   */
  end(state, isRecorded) {
    const { requestId } = this;
    const [hasFailed, isComplete] = [this.model.status === 'failed', state === ''];
    this.root.dataset['ended'] = isComplete ? 'complete' : 'early';
    this.showNumbers();
    this.#showEnd({ state, numbers: this.numbers.textContent, requestId, isRecorded, hasFailed, isComplete });
  }

  /** Returns what another page can show again. @returns {KeptAnswer} */
  kept() {
    const left = {
      state: 'The page was left before the answer ended.',
      numbers: this.numbers.textContent,
      requestId: this.requestId,
      isRecorded: this.requestId !== null,
      hasFailed: false,
      isComplete: false,
    };
    const calls = [...this.calls.values()];
    return { ...(this.ended ?? left), content: this.text.text, reasoning: this.reasoningText.textContent, calls };
  }

  /** @param {KeptAnswer} kept */
  restore({ content, reasoning, calls, ...end }) {
    this.text.append(content);
    this.reasoning.hidden = reasoning === '';
    this.reasoningText.textContent = reasoning;
    this.calls = new Map(calls.entries());
    this.#showEnd(end);
  }

  /** @param {End} end */
  #showEnd(end) {
    this.ended = end;
    this.text.end();
    this.#showCalls(end.isComplete);
    this.progress.hidden = true;
    this.root.dataset['ended'] = end.isComplete ? 'complete' : 'early';
    this.state.ariaLive = 'polite';
    const isEmpty = end.isComplete && this.text.text === '' && this.calls.size === 0;
    this.state.textContent = isEmpty ? 'The model returned no text.' : end.state;
    // An operator sees there why the engine failed.
    if (end.hasFailed && this.engines !== undefined)
      this.state.append(' ', linkTo(`${this.engines}${encodeURIComponent(this.model.id)}`, 'Engine failure details'));
    this.numbers.textContent = end.numbers;
    if (end.requestId !== null) this.#showRequest(end.requestId, end.isRecorded);
    if (this.text.text !== '') this.root.append(this.#actions());
  }

  /**
   * @param {string} id
   * @param {boolean} isRecorded
   */
  #showRequest(id, isRecorded) {
    if (this.numbers.textContent !== '') this.numbers.append(' · ');
    if (isRecorded) this.numbers.append(linkTo(`/portal/usage/${encodeURIComponent(id)}`, `details: request ${id}`));
    else this.numbers.append('request ', element('code', '', id));
  }

  #actions() {
    const actions = element('p', 'answer-actions');
    actions.append(action('plain', 'Copy answer', (button) => void copyText(button, this.text.text, this.text.root)));
    return actions;
  }
}

/**
 * @param {string} path
 * @param {string} text
 */
function linkTo(path, text) {
  const link = element('a', '', text);
  link.href = path;
  return link;
}

/** @param {string} decimal */
function padded(decimal) {
  const [whole = '0', fraction = ''] = decimal.split('.');
  return `${whole}.${fraction.padEnd(2, '0')}`;
}

/** @param {number} tokens per second */
const speed = (tokens) => `${tokens.toFixed(tokens < 100 ? 1 : 0)} tokens/s`;

/** @param {ToolCall} call @param {boolean} isComplete */
function callView({ function: { name, arguments: given } }, isComplete) {
  const block = element('div', 'tool-call');
  const args = element('pre', '', indented(given));
  args.tabIndex = 0;
  block.append(element('p', 'tool-name', `calls ${name}`), args);
  if (isComplete) block.append(element('p', 'hint', 'Your next message is sent as the result of this call.'));
  return block;
}

/** @param {string} json */
function indented(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}

/**
 * Yields the data of a stream's events. The gateway writes the data of each event on one line, and sends comments while
 * a model starts.
 * @param {ReadableStream<Uint8Array>} body
 */
async function* eventsOf(body) {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let rest = '';
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    const lines = (rest + decoder.decode(read.value, { stream: true })).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line.startsWith('data: ')) yield line.slice(6);
  }
}

/**
 * @param {Response} answer
 * @param {AnswerView} view
 * @param {import('./playground-protocols.js').EventReader} read
 * @returns the error message, or '' if the answer is complete
 */
export async function readAnswer(answer, view, read) {
  if (!answer.ok || answer.body === null) {
    // A proxy in front of the gateway answers with something else.
    const { error } = /** @type {Frame} */ (await answer.json().catch(() => ({})));
    return error?.message ?? `The gateway returned HTTP ${answer.status}.`;
  }
  for await (const data of eventsOf(answer.body)) {
    const frame = read(data);
    view.take(frame);
    if (frame.isLast === true) return view.failure ?? '';
  }
  return view.failure ?? 'The answer ended early: the connection was closed.';
}
