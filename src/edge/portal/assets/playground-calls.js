import { byId, codeBlock, element, onCtrlEnter } from './playground-dom.js';

/** Asks models that do not chat: for embeddings, a ranking or a completion. */

/**
 * @typedef {{ id: string, status: string, task: 'embedding' | 'rerank' | 'completion' }} OtherModel
 * @typedef {{ path: string, body: Record<string, unknown>, show: (answer: unknown) => Node[] }} Call
 */

const shownNumbers = 4;

/** Texts that are compared with each other. The table grows with their square. */
const comparedMax = 20;

/** @param {string} id */
const textOf = (id) => byId(id, HTMLTextAreaElement).value;

/** @param {string} id @param {string} label */
function linesOf(id, label) {
  const lines = textOf(id)
    .split('\n')
    .filter((line) => line.trim() !== '');
  if (lines.length === 0) throw new Error(`${label} is empty. Enter one text on each line.`);
  return lines;
}

/**
 * @param {string} id
 * @param {string} label
 */
function requiredText(id, label) {
  const text = textOf(id);
  if (text.trim() === '') throw new Error(`${label} is empty.`);
  return text;
}

/** The request for each kind of model. @type {Record<OtherModel['task'], (model: string) => Call>} */
const calls = {
  embedding(model) {
    const input = linesOf('texts', 'Texts');
    /** @param {unknown} answer */
    const show = (answer) => {
      const { data } = /** @type {{ data: { embedding: number[] }[] }} */ (answer);
      const vectors = data.map(({ embedding }) => embedding);
      return [vectorTable(input, vectors), ...(vectors.length > 1 ? [similarityTable(vectors)] : [])];
    };
    return { path: 'embeddings', body: { model, input }, show };
  },
  rerank(model) {
    const documents = linesOf('documents', 'Documents');
    /** @param {unknown} answer */
    const show = (answer) => {
      const { results } = /** @type {{ results: { index: number, relevance_score: number }[] }} */ (answer);
      const rows = results.map(({ index, relevance_score: score }, at) => [
        String(at + 1),
        documents[index] ?? '',
        score.toFixed(4),
      ]);
      return [table('Ranking', ['Rank', 'Document', 'Score'], rows)];
    };
    return { path: 'rerank', body: { model, query: requiredText('query', 'Query'), documents }, show };
  },
  completion(model) {
    /** @param {unknown} answer */
    const show = (answer) => {
      const { choices } = /** @type {{ choices: { text: string }[] }} */ (answer);
      return choices.map(({ text }) => codeBlock(text));
    };
    return { path: 'completions', body: { model, prompt: requiredText('completion', 'Prompt') }, show };
  },
};

/**
 * @param {string} title
 * @param {readonly string[]} heads
 * @param {readonly (readonly string[])[]} rows
 */
function table(title, heads, rows) {
  const box = element('div', 'table');
  box.tabIndex = 0;
  box.role = 'region';
  box.ariaLabel = title;
  const made = element('table', '');
  const head = element('tr', '');
  head.append(
    ...heads.map((text) => {
      const cell = element('th', '', text);
      cell.scope = 'col';
      return cell;
    }),
  );
  const thead = element('thead', '');
  thead.append(head);
  const body = element('tbody', '');
  for (const cells of rows) {
    const row = element('tr', '');
    row.append(...cells.map((text) => element('td', '', text)));
    body.append(row);
  }
  made.append(element('caption', '', title), thead, body);
  box.append(made);
  return box;
}

/**
 * @param {readonly string[]} texts
 * @param {readonly (readonly number[])[]} vectors
 */
function vectorTable(texts, vectors) {
  const rows = vectors.map((vector, at) => {
    const first = vector.slice(0, shownNumbers).map((number) => number.toFixed(4));
    return [`${at + 1}. ${texts[at] ?? ''}`, String(vector.length), `${first.join(', ')}, …`];
  });
  return table('Vectors', ['Text', 'Length', 'First numbers'], rows);
}

/** @param {readonly (readonly number[])[]} all */
function similarityTable(all) {
  const vectors = all.slice(0, comparedMax);
  const title = `Cosine similarity${all.length > comparedMax ? ` of the first ${comparedMax} texts` : ''}`;
  const names = vectors.map((_, at) => String(at + 1));
  const rows = vectors.map((one, at) => [names[at] ?? '', ...vectors.map((other) => cosine(one, other).toFixed(3))]);
  return table(title, ['Text', ...names], rows);
}

/**
 * @param {readonly number[]} one
 * @param {readonly number[]} other
 */
function cosine(one, other) {
  /** @param {readonly number[]} a @param {readonly number[]} b */
  const dot = (a, b) => a.reduce((sum, value, at) => sum + value * (b[at] ?? 0), 0);
  return dot(one, other) / Math.sqrt(dot(one, one) * dot(other, other));
}

class Calls {
  /** @param {HTMLFormElement} form */
  constructor(form) {
    this.form = form;
    this.models = /** @type {OtherModel[]} */ (JSON.parse(form.dataset['models'] ?? '[]'));
    this.select = byId('other-model', HTMLSelectElement);
    this.result = byId('call-result', HTMLDivElement);
    this.state = byId('call-state', HTMLParagraphElement);
    this.button = byId('call', HTMLButtonElement);
  }

  start() {
    this.form.hidden = false;
    document.getElementById('needs-script')?.remove();
    this.select.addEventListener('change', () => this.showFields());
    this.form.addEventListener('submit', (event) => {
      event.preventDefault();
      void this.ask();
    });
    onCtrlEnter(this.form, () => this.ask());
    this.showFields();
    if (location.hash === '#calls') this.select.focus();
  }

  chosen() {
    return this.models.find(({ id }) => id === this.select.value);
  }

  showFields() {
    /** @type {NodeListOf<HTMLElement>} */
    const groups = this.form.querySelectorAll('[data-task]');
    for (const group of groups) group.hidden = group.dataset['task'] !== this.chosen()?.task;
  }

  async ask() {
    const model = this.chosen();
    if (model === undefined || this.button.disabled) return;
    this.result.replaceChildren();
    this.button.disabled = true;
    this.state.textContent = model.status === 'ready' ? 'Waiting for the answer.' : 'The engine starts first.';
    try {
      const call = calls[model.task](model.id);
      this.state.replaceChildren(...(await this.send(call)));
    } catch (error) {
      this.state.textContent = /** @type {Error} */ (error).message;
    } finally {
      this.button.disabled = false;
    }
  }

  /** Sends the request, shows its result, and returns the numbers of the request. @param {Call} call */
  async send({ path, body, show }) {
    const answer = await fetch(`/portal/playground/${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-form-token': this.form.dataset['formToken'] ?? '' },
      body: JSON.stringify(body),
    });
    const content =
      /** @type {{ error?: { message: string }, usage?: { prompt_tokens?: number, total_tokens?: number } }} */ (
        await answer.json()
      );
    if (!answer.ok) throw new Error(content.error?.message ?? `The gateway returned HTTP ${answer.status}.`);
    this.result.replaceChildren(...show(content));
    const id = answer.headers.get('x-request-id') ?? '';
    const link = element('a', '', `details: request ${id}`);
    link.href = `/portal/usage/${encodeURIComponent(id)}`;
    return [`${content.usage?.total_tokens ?? content.usage?.prompt_tokens ?? 0} tokens · `, link];
  }
}

const form = document.getElementById('calls');
if (form instanceof HTMLFormElement) new Calls(form).start();
