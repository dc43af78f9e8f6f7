import { AnswerView, readAnswer } from './playground-answer.js';
import './playground-calls.js';
import { snippetView } from './playground-code.js';
import { Exchange, heard, messagesOf } from './playground-conversation.js';
import { byId, onCtrlEnter } from './playground-dom.js';
import { highlight } from './playground-highlight.js';
import { dataUrlOf, fileOf } from './playground-image.js';
import { ModelChoice } from './playground-models.js';
import {
  chosenProtocol,
  fillSettings,
  Presets,
  requestFields,
  SettingError,
  settingValues,
  systemPrompt,
} from './playground-settings.js';
import { Store } from './playground-store.js';

/** Sends requests to models from the page, and keeps the conversation for the tab. */

/**
 * @typedef {import('./playground-conversation.js').Asked} Asked
 * @typedef {import('./playground-conversation.js').KeptExchange} KeptExchange
 * @typedef {import('./playground-conversation.js').Message} Message
 * @typedef {import('./playground-models.js').Model} Model
 * @typedef {import('./playground-models.js').Side} Side
 * @typedef {import('./playground-protocols.js').Protocol} Protocol
 * @typedef {{ protocol: Protocol, body: Record<string, unknown> }} Sent
 * @typedef {{ exchanges: KeptExchange[], prompt: string, settings: Record<string, string>, models: string[], isPlain: boolean }} KeptTab
 */

const imageBytesMax = 4_000_000;
const tickMs = 250;
const modelsEveryMs = 2000;
const keepAfterMs = 500;

class Playground {
  /** @param {HTMLFormElement} form */
  constructor(form) {
    this.form = form;
    this.store = new Store(form.dataset['owner'] ?? '');
    this.models = new ModelChoice(form, this.store.lastModel());
    this.conversation = byId('conversation', HTMLOListElement);
    this.prompt = byId('prompt', HTMLTextAreaElement);
    this.image = byId('image', HTMLInputElement);
    this.plain = byId('plain', HTMLInputElement);
    this.problem = byId('problem', HTMLParagraphElement);
    this.send = byId('send', HTMLButtonElement);
    this.stop = byId('stop', HTMLButtonElement);
    /** @type {Exchange[]} */
    this.exchanges = [];
    /** @type {AbortController | null} */
    this.running = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.keeping = undefined;
    /** @type {Sent | undefined} */
    this.lastSent = undefined;
  }

  start() {
    this.form.hidden = false;
    document.getElementById('needs-script')?.remove();
    try {
      this.restore();
    } catch {
      // An earlier release of the page kept it in another shape.
      this.cutFrom(0);
    }
    this.presets = new Presets(this.store, () => this.keepSoon());
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      void this.ask();
    });
    this.stop.addEventListener('click', () => this.running?.abort());
    byId('clear', HTMLButtonElement).addEventListener('click', () => this.clear());
    this.form.addEventListener('change', () => this.showImageField());
    this.form.addEventListener('input', () => this.keepSoon());
    this.plain.addEventListener('change', () => this.showPlain());
    onCtrlEnter(this.prompt, () => this.ask());
    byId('code', HTMLDetailsElement).addEventListener('toggle', ({ target }) => {
      if (target instanceof HTMLDetailsElement && target.open)
        this.showCode().catch((error) => this.showProblem(error));
    });
    window.addEventListener('pagehide', () => this.keep());
    this.showImageField();
    if (location.hash !== '#calls') this.focusPrompt();
  }

  focusPrompt() {
    this.prompt.focus();
    this.prompt.setSelectionRange(this.prompt.value.length, this.prompt.value.length);
  }

  /** Restores what the tab kept. A link's model and message come first, except when the reader returns to the page. */
  restore() {
    const kept = /** @type {KeptTab | null | undefined} */ (this.store.tab());
    if (kept === null || kept === undefined) return;
    const [navigation] = performance.getEntriesByType('navigation');
    const isReturn = navigation instanceof PerformanceNavigationTiming && navigation.type !== 'navigate';
    this.plain.checked = kept.isPlain;
    fillSettings(kept.settings);
    if (isReturn || this.prompt.value === '') this.prompt.value = kept.prompt;
    const isNamed = this.form.dataset['named'] !== undefined;
    if (isReturn || (kept.exchanges.length > 0 && !isNamed)) this.models.choose(kept.models);
    for (const one of kept.exchanges) this.addExchange(one.asked).restore(one, (id) => this.viewOf(this.modelOf(id)));
  }

  /** @param {string} id @returns {Model} */
  modelOf(id) {
    return this.models.find(id) ?? { id, status: 'cold', sees: false, expectedSeconds: null, price: null };
  }

  /** @param {Model} model */
  viewOf(model) {
    return new AnswerView(model, { isPlain: this.plain.checked, engines: this.form.dataset['engines'] });
  }

  /** @param {Asked} asked */
  addExchange(asked) {
    const exchange = new Exchange(asked, {
      edit: (one) => this.edit(one),
      regenerate: (one) => void this.regenerate(one),
    });
    this.exchanges.push(exchange);
    this.conversation.append(exchange.root);
    return exchange;
  }

  keepSoon() {
    clearTimeout(this.keeping);
    this.keeping = setTimeout(() => this.keep(), keepAfterMs);
  }

  keep() {
    clearTimeout(this.keeping);
    this.store.keepTab({
      exchanges: this.exchanges.map((exchange) => exchange.kept()),
      prompt: this.prompt.value,
      settings: settingValues(),
      models: this.models.ids(),
      isPlain: this.plain.checked,
    });
  }

  showPlain() {
    for (const { answers } of this.exchanges) for (const { view } of answers) view.text.setPlain(this.plain.checked);
  }

  clear() {
    this.running?.abort();
    this.cutFrom(0);
    this.problem.textContent = '';
    this.prompt.focus();
  }

  /** Ends the conversation before an exchange. @param {number} at */
  cutFrom(at) {
    for (const { root } of this.exchanges.splice(at)) root.remove();
    this.keep();
  }

  /** Puts a sent message back into the prompt. @param {Exchange} exchange */
  edit(exchange) {
    if (this.running !== null) return;
    const { text, image } = exchange.asked;
    this.prompt.value = text;
    this.setImage(image);
    this.cutFrom(this.exchanges.indexOf(exchange));
    this.focusPrompt();
  }

  /** @param {string | null} dataUrl */
  setImage(dataUrl) {
    const files = new DataTransfer();
    if (dataUrl !== null) files.items.add(fileOf(dataUrl));
    this.image.files = files.files;
  }

  showImageField() {
    byId('image-field', HTMLDivElement).hidden = !this.models.chosen().some(({ model }) => model.sees);
  }

  /** Returns the message to send. @returns {Promise<Asked>} */
  async asked() {
    const file = byId('image-field', HTMLDivElement).hidden ? undefined : this.image.files?.[0];
    if (file !== undefined && file.size > imageBytesMax)
      throw new Error('The image is larger than 4 MB. Send a smaller one.');
    return { text: this.prompt.value, image: file === undefined ? null : await dataUrlOf(file) };
  }

  /**
   * Returns the request of one side.
   * @param {Model} model
   * @param {Message[]} messages
   * @returns {Sent}
   */
  requestOf(model, messages) {
    const system = systemPrompt();
    const protocol = chosenProtocol();
    const body = protocol.request({
      model: model.id,
      messages: [...(system === '' ? [] : [{ role: 'system', content: system }]), ...messages],
      ...requestFields(),
    });
    return { protocol, body: /** @type {Record<string, unknown>} */ (JSON.parse(JSON.stringify(body))) };
  }

  /**
   * Returns the requests of all chosen models for one message.
   * @param {readonly Exchange[]} before
   * @param {Asked} asked
   */
  requestsOf(before, asked) {
    return this.models.chosen().map(({ side, model }) => {
      const messages = messagesOf(before, side);
      return { side, model, sent: this.requestOf(model, [...messages, ...heard(messages.at(-1), asked)]) };
    });
  }

  ask() {
    return this.run(async (signal) => {
      if (this.prompt.value.trim() === '') throw new Error('Write a message first.');
      const asked = await this.asked();
      const requests = this.requestsOf(this.exchanges, asked);
      const exchange = this.addExchange(asked);
      this.prompt.value = '';
      this.image.value = '';
      await this.answer(exchange, requests, signal);
    });
  }

  /** Asks all chosen models once more for the last message. @param {Exchange} exchange */
  regenerate(exchange) {
    return this.run(async (signal) => {
      const requests = this.requestsOf(this.exchanges.slice(0, -1), exchange.asked);
      exchange.clear();
      await this.answer(exchange, requests, signal);
    });
  }

  /** @param {(signal: AbortSignal) => Promise<void>} act */
  async run(act) {
    if (this.running !== null || this.models.chosen().length === 0) return;
    this.problem.textContent = '';
    const running = new AbortController();
    this.running = running;
    this.setBusy(true);
    try {
      await act(running.signal);
    } catch (error) {
      this.showProblem(error);
    } finally {
      this.running = null;
      this.setBusy(false);
      this.keep();
    }
  }

  /** @param {unknown} error */
  showProblem(error) {
    this.problem.textContent = error instanceof Error ? error.message : String(error);
    if (!(error instanceof SettingError)) return;
    byId('settings', HTMLDetailsElement).open = true;
    error.field.focus();
  }

  /** @param {boolean} isBusy */
  setBusy(isBusy) {
    // A disabled button cannot keep the focus.
    if (document.activeElement === (isBusy ? this.send : this.stop)) this.prompt.focus();
    this.send.disabled = isBusy;
    this.stop.disabled = !isBusy;
    this.form.ariaBusy = String(isBusy);
    for (const button of this.conversation.querySelectorAll('.exchange-actions button'))
      button.ariaDisabled = isBusy ? 'true' : null;
  }

  /**
   * @param {Exchange} exchange
   * @param {{ side: Side, model: Model, sent: Sent }[]} requests
   * @param {AbortSignal} signal
   */
  async answer(exchange, requests, signal) {
    const [first] = requests;
    if (first !== undefined) this.store.keepLastModel(first.model.id);
    await this.models.refresh().catch(() => undefined);
    const streams = requests.map(({ side, model, sent }) => {
      const view = this.viewOf(model);
      exchange.add(side, view);
      return this.stream(view, sent, signal);
    });
    this.setBusy(true);
    await Promise.all(streams);
    if (byId('code', HTMLDetailsElement).open) await this.showCode(first?.sent);
    else this.lastSent = first?.sent;
  }

  /**
   * @param {AnswerView} view
   * @param {Sent} sent
   * @param {AbortSignal} signal
   */
  async stream(view, { protocol, body }, signal) {
    view.wait();
    const tick = setInterval(() => view.wait(), tickMs);
    const look = setInterval(() => {
      if (view.firstMs === null) void this.models.refresh().catch(() => undefined);
    }, modelsEveryMs);
    /** @type {Response | null} */
    let answer = null;
    let problem = '';
    try {
      answer = await fetch(`/portal/playground/${protocol.path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'x-form-token': this.form.dataset['formToken'] ?? '' },
        body: JSON.stringify(body),
        signal,
      });
      view.requestId = answer.headers.get('x-request-id');
      problem = await readAnswer(answer, view, protocol.reader());
    } catch (error) {
      problem = signal.aborted ? 'Stopped. Tokens generated until then are billed.' : 'The connection was lost.';
      if (!signal.aborted && !(error instanceof TypeError)) problem = String(error);
    } finally {
      clearInterval(tick);
      clearInterval(look);
    }
    await this.models.refresh().catch(() => undefined);
    // A request without a session, or of another one, does not reach the log.
    const isRecorded = answer !== null && ![401, 403].includes(answer.status);
    view.end(problem, isRecorded);
  }

  /**
   * Returns the messages of the last request, which an earlier visit of the page may have sent, or else of the next one.
   * @param {Side} side
   */
  async lastMessages(side) {
    const last = this.exchanges.at(-1)?.asked ?? (await this.asked());
    const before = messagesOf(this.exchanges.slice(0, -1), side);
    return [...before, ...heard(before.at(-1), last)];
  }

  /** @param {Sent} [sent] */
  async showCode(sent) {
    const [first] = this.models.chosen();
    if (first === undefined) return;
    this.lastSent = sent ?? this.lastSent;
    const { protocol, body } = this.lastSent ?? this.requestOf(first.model, await this.lastMessages(first.side));
    const snippets = Object.entries(protocol.snippets(this.form.dataset['origin'] ?? '', body));
    const list = byId('code-list', HTMLDivElement);
    list.replaceChildren(...snippets.map(([title, text], at) => snippetView(title, text, at === 0)));
    highlight(list);
  }
}

const form = document.getElementById('playground');
if (form instanceof HTMLFormElement) new Playground(form).start();
