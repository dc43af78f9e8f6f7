import { byId } from './playground-dom.js';

/** The two choices of a model. */

/**
 * @typedef {{ input_per_million: string, output_per_million: string, cached_input_per_million: string }} Price
 * @typedef {{ id: string, status: 'ready' | 'starting' | 'cold' | 'failed', sees: boolean, expectedSeconds: number | null, price: Price | null }} Model
 * @typedef {0 | 1} Side
 */

const refreshMs = 2000;

export class ModelChoice {
  /**
   * @param {HTMLFormElement} form
   * @param {string | null} lastUsed
   */
  constructor(form, lastUsed) {
    this.models = /** @type {Model[]} */ (JSON.parse(form.dataset['models'] ?? '[]'));
    /** @type {readonly [HTMLSelectElement, HTMLSelectElement]} */
    this.selects = [byId('model-0', HTMLSelectElement), byId('model-1', HTMLSelectElement)];
    this.#putFirst(lastUsed);
    const [first] = this.selects;
    if (form.dataset['named'] === undefined) first.selectedIndex = 0;
  }

  /** Puts a model before the others of its status. @param {string | null} id */
  #putFirst(id) {
    const model = this.find(id);
    if (model === undefined) return;
    const next = this.models.find(({ status }) => status === model.status);
    for (const { options } of this.selects) {
      const [option, before] = [model, next].map((one) => [...options].find(({ value }) => value === one?.id));
      if (option !== undefined && before !== undefined && option !== before) before.before(option);
    }
  }

  /** @param {string | null} id */
  find(id) {
    return this.models.find((model) => model.id === id);
  }

  /** Returns the chosen models, each with its side. @returns {{ side: Side, model: Model }[]} */
  chosen() {
    return /** @type {const} */ ([0, 1]).flatMap((side) => {
      const model = this.find(this.selects[side].value);
      return model === undefined ? [] : [{ side, model }];
    });
  }

  /** Returns the ids of the chosen models; '' for none. */
  ids() {
    return this.selects.map(({ value }) => value);
  }

  /** Chooses models that still exist. @param {readonly string[]} ids */
  choose(ids) {
    for (const [at, select] of this.selects.entries()) {
      const id = ids[at];
      if (id !== undefined && [...select.options].some(({ value }) => value === id)) select.value = id;
    }
  }

  /** Shows the current status of each model. The order stays, so that no list changes under the reader's hand. */
  async refresh() {
    const headers = { accept: 'application/json' };
    // Answers wait for the statuses, but not for long.
    const answer = await fetch('/portal/playground/models', { headers, signal: AbortSignal.timeout(refreshMs) });
    // A signed-out visitor is redirected to the sign-in page, which has no models.
    if (!answer.ok || answer.redirected) return;
    const { data } = /** @type {{ data: Model[] }} */ (await answer.json());
    for (const model of this.models)
      Object.assign(
        model,
        data.find(({ id }) => id === model.id),
      );
    for (const option of this.selects.flatMap(({ options }) => [...options])) {
      const model = this.find(option.value);
      if (model !== undefined) option.textContent = `${model.id} · ${model.status}${option.dataset['costs'] ?? ''}`;
    }
  }
}
