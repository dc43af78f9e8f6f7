import { AnswerView, element, readAnswer } from './playground-answer.js';
import { snippetsOf, snippetView } from './playground-code.js';

/**
 * Sends requests to models from the page. Answers are text: the page never parses them as HTML, and never follows a URL
 * in them.
 */

/**
 * @typedef {import('./playground-answer.js').Model} Model
 * @typedef {import('./playground-answer.js').ToolCall} ToolCall
 * @typedef {{ role: string, content: unknown, tool_calls?: ToolCall[], tool_call_id?: string }} Message
 */

const imageBytesMax = 4_000_000;
const tickMs = 250;
const modelsEveryMs = 2000;

/**
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} kind
 * @returns {T}
 */
function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`there is no ${id}`);
  return found;
}

/** @param {File} file @returns {Promise<string>} */
function dataUrlOf(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener('load', () => resolve(typeof reader.result === 'string' ? reader.result : ''));
    reader.addEventListener('error', () => reject(new Error('The image could not be read.')));
    reader.readAsDataURL(file);
  });
}

class Playground {
  /** @param {HTMLFormElement} form */
  constructor(form) {
    this.form = form;
    this.models = /** @type {Model[]} */ (JSON.parse(form.dataset['models'] ?? '[]'));
    this.conversation = byId('conversation', HTMLOListElement);
    this.prompt = byId('prompt', HTMLTextAreaElement);
    this.image = byId('image', HTMLInputElement);
    this.problem = byId('problem', HTMLParagraphElement);
    this.send = byId('send', HTMLButtonElement);
    this.stop = byId('stop', HTMLButtonElement);
    /** Messages of the conversation with each side. @type {[Message[], Message[]]} */
    this.said = [[], []];
    /** @type {AbortController | null} */
    this.running = null;
  }

  start() {
    this.form.hidden = false;
    document.getElementById('needs-script')?.remove();
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      void this.ask();
    });
    this.stop.addEventListener('click', () => this.running?.abort());
    byId('clear', HTMLButtonElement).addEventListener('click', () => this.clear());
    this.form.addEventListener('change', () => this.showImageField());
    this.prompt.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      void this.ask();
    });
    byId('code', HTMLDetailsElement).addEventListener('toggle', () => void this.showCode());
    this.showImageField();
    this.prompt.focus();
    this.prompt.setSelectionRange(this.prompt.value.length, this.prompt.value.length);
  }

  clear() {
    this.running?.abort();
    this.said = [[], []];
    this.conversation.replaceChildren();
    this.problem.textContent = '';
    this.prompt.focus();
  }

  /** Returns the chosen models, each with its side. @returns {{ side: 0 | 1, model: Model }[]} */
  chosen() {
    return /** @type {const} */ ([0, 1]).flatMap((side) => {
      const { value } = byId(`model-${side}`, HTMLSelectElement);
      const model = this.models.find(({ id }) => id === value);
      return model === undefined ? [] : [{ side, model }];
    });
  }

  showImageField() {
    byId('image-field', HTMLDivElement).hidden = !this.chosen().some(({ model }) => model.sees);
  }

  /** @param {string} id */
  number(id) {
    const text = byId(id, HTMLInputElement).value.trim();
    if (text === '') return undefined;
    const value = Number(text);
    if (Number.isFinite(value)) return value;
    throw new Error(
      `${id === 'temperature' ? 'Temperature' : 'Max output tokens'} must be a number, such as ${id === 'temperature' ? '0.7' : '512'}.`,
    );
  }

  /** @returns {unknown[] | undefined} */
  tools() {
    const text = byId('tools', HTMLTextAreaElement).value.trim();
    if (text === '') return undefined;
    const tools = parsed(text);
    if (Array.isArray(tools)) return /** @type {unknown[]} */ (tools);
    throw new Error('Tools must be a JSON array, such as [{"type": "function", "function": {"name": "now"}}].');
  }

  /** Returns the content of the message: text only, or text with an image. */
  async content() {
    const text = this.prompt.value;
    const file = byId('image-field', HTMLDivElement).hidden ? undefined : this.image.files?.[0];
    if (file === undefined) return text;
    if (file.size > imageBytesMax) throw new Error('The image is larger than 4 MB. Send a smaller one.');
    return [
      { type: 'text', text },
      { type: 'image_url', image_url: { url: await dataUrlOf(file) } },
    ];
  }

  /**
   * Returns the request body for one side.
   * @param {string} model
   * @param {Message[]} said
   */
  bodyOf(model, said) {
    const system = byId('system', HTMLTextAreaElement).value.trim();
    const first = system === '' ? [] : [{ role: 'system', content: system }];
    const body = {
      model,
      messages: [...first, ...said],
      temperature: this.number('temperature'),
      max_tokens: this.number('max-tokens'),
      tools: this.tools(),
      stream: true,
      stream_options: { include_usage: true, continuous_usage_stats: true },
      usage: { include: true },
    };
    return /** @type {Record<string, unknown>} */ (JSON.parse(JSON.stringify(body)));
  }

  async refreshModels() {
    const answer = await fetch('/portal/playground/models', { headers: { accept: 'application/json' } });
    // A signed-out visitor is redirected to the sign-in page, which has no models.
    if (!answer.ok || answer.redirected) return;
    const { data } = /** @type {{ data: Model[] }} */ (await answer.json());
    for (const model of this.models)
      Object.assign(
        model,
        data.find(({ id }) => id === model.id),
      );
    /** @type {NodeListOf<HTMLOptionElement>} */
    const options = this.form.querySelectorAll('.models option[data-costs]');
    for (const option of options) {
      const model = this.models.find(({ id }) => id === option.value);
      if (model !== undefined) option.textContent = `${model.id} · ${model.status}${option.dataset['costs'] ?? ''}`;
    }
  }

  async ask() {
    const chosen = this.chosen();
    if (this.running !== null || chosen.length === 0) return;
    this.problem.textContent = '';
    if (this.prompt.value.trim() === '') {
      this.problem.textContent = 'Write a message first.';
      return;
    }
    const running = new AbortController();
    this.running = running;
    this.setBusy(true);
    try {
      await this.askAll(chosen, running.signal);
    } catch (error) {
      this.problem.textContent = error instanceof Error ? error.message : String(error);
    } finally {
      this.running = null;
      this.setBusy(false);
    }
  }

  /** @param {boolean} isBusy */
  setBusy(isBusy) {
    this.send.disabled = isBusy;
    this.stop.disabled = !isBusy;
    this.form.ariaBusy = String(isBusy);
  }

  /**
   * @param {{ side: 0 | 1, model: Model }[]} chosen
   * @param {AbortSignal} signal
   */
  async askAll(chosen, signal) {
    const content = await this.content();
    const requests = chosen.map(({ side, model }) => {
      const before = this.said[side].length === 0 && side === 1 ? this.said[0] : this.said[side];
      const said = [...before, ...heard(before.at(-1), content)];
      return { side, model, said, body: this.bodyOf(model.id, said) };
    });
    await this.refreshModels();
    const exchange = element('li', 'exchange');
    const answers = element('div', requests.length > 1 ? 'answers two' : 'answers');
    exchange.append(element('p', 'asked', this.prompt.value), answers);
    this.conversation.append(exchange);
    this.prompt.value = '';
    this.image.value = '';
    await Promise.all(
      requests.map(async ({ side, model, said, body }) => {
        const view = new AnswerView(model);
        answers.append(view.root);
        this.said[side] = said;
        await this.stream(view, body, signal);
        const calls = view.calls.filter((call) => call !== undefined);
        this.said[side] = [
          ...said,
          { role: 'assistant', content: view.content, ...(calls.length > 0 && { tool_calls: calls }) },
        ];
      }),
    );
    if (byId('code', HTMLDetailsElement).open) await this.showCode(requests[0]?.body);
    else this.lastBody = requests[0]?.body;
  }

  /**
   * @param {AnswerView} view
   * @param {Record<string, unknown>} body
   * @param {AbortSignal} signal
   */
  async stream(view, body, signal) {
    view.wait();
    const tick = setInterval(() => view.wait(), tickMs);
    const look = setInterval(() => {
      if (view.firstMs === null) void this.refreshModels().catch(() => undefined);
    }, modelsEveryMs);
    /** @type {Response | null} */
    let answer = null;
    let problem = '';
    try {
      answer = await fetch('/portal/playground/chat', {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-form-token': this.form.dataset['formToken'] ?? '' },
        body: JSON.stringify(body),
        signal,
      });
      problem = await readAnswer(answer, view);
    } catch (error) {
      problem = signal.aborted ? 'Stopped. Tokens generated until then are billed.' : 'The connection was lost.';
      if (!signal.aborted && !(error instanceof TypeError)) problem = String(error);
    } finally {
      clearInterval(tick);
      clearInterval(look);
    }
    await this.refreshModels().catch(() => undefined);
    const isRecorded = answer !== null && (answer.ok || answer.status >= 500);
    view.end(problem, answer?.headers.get('x-request-id') ?? null, isRecorded);
    const { engines } = this.form.dataset;
    if (engines !== undefined && view.model.status === 'failed') view.linkTo(engines);
  }

  /** @param {Record<string, unknown>} [body] */
  async showCode(body) {
    const [first] = this.chosen();
    if (first === undefined) return;
    this.lastBody = body ?? this.lastBody;
    const shown = this.lastBody ?? this.bodyOf(first.model.id, heard(undefined, await this.content()));
    const snippets = Object.entries(snippetsOf(this.form.dataset['origin'] ?? '', shown));
    byId('code-list', HTMLDivElement).replaceChildren(
      ...snippets.map(([title, text], at) => snippetView(title, text, at)),
    );
  }

  /** @type {Record<string, unknown> | undefined} */
  lastBody = undefined;
}

/** @param {string} text @returns {unknown} */
function parsed(text) {
  try {
    return /** @type {unknown} */ (JSON.parse(text));
  } catch {
    return null;
  }
}

/**
 * Returns the messages for the person's input. If the model called tools, the input is the result of each call.
 * @param {Message | undefined} before
 * @param {unknown} content
 * @returns {Message[]}
 */
function heard(before, content) {
  if (before?.tool_calls === undefined) return [{ role: 'user', content }];
  return before.tool_calls.map(({ id }) => ({ role: 'tool', tool_call_id: id, content }));
}

const form = document.getElementById('playground');
if (form instanceof HTMLFormElement) new Playground(form).start();
