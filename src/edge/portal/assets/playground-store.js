/** Keeps the conversation in the tab, and presets and the last model in the browser. */

/** Characters of a tab's conversation. Browsers give a page about five million. */
const keptMax = 2_000_000;

export class Store {
  /** @param {string} owner The person and organization: others of the same browser see nothing of theirs. */
  constructor(owner) {
    this.owner = owner;
  }

  /** @returns {string | null} */
  lastModel() {
    return attempt(() => localStorage.getItem(this.#name('model'))) ?? null;
  }

  /** @param {string} id */
  keepLastModel(id) {
    attempt(() => localStorage.setItem(this.#name('model'), id));
  }

  /** @returns {unknown} the presets, or undefined */
  presets() {
    return attempt(() => /** @type {unknown} */ (JSON.parse(localStorage.getItem(this.#name('presets')) ?? '[]')));
  }

  /**
   * @param {unknown} presets
   * @returns {boolean} false if the browser has no room
   */
  keepPresets(presets) {
    return attempt(() => (localStorage.setItem(this.#name('presets'), JSON.stringify(presets)), true)) ?? false;
  }

  /** Returns what this tab kept for the owner, and removes what it kept for others. @returns {unknown} */
  tab() {
    return attempt(() => {
      const name = this.#name('tab');
      for (const other of Object.keys(sessionStorage))
        if (other.startsWith(prefix) && other !== name) sessionStorage.removeItem(other);
      return /** @type {unknown} */ (JSON.parse(sessionStorage.getItem(name) ?? 'null'));
    });
  }

  /**
   * Keeps the state of the tab. The oldest exchanges are left out if there is no room for all.
   * @template {{ exchanges: readonly unknown[] }} State
   * @param {State} state
   */
  keepTab(state) {
    for (let from = 0; from <= state.exchanges.length; from++) {
      const text = JSON.stringify({ ...state, exchanges: state.exchanges.slice(from) });
      if (text.length > keptMax && from < state.exchanges.length) continue;
      if (attempt(() => (sessionStorage.setItem(this.#name('tab'), text), true)) === true) return;
    }
  }

  /** @param {string} what */
  #name(what) {
    return `${prefix}${what}:${this.owner}`;
  }
}

const prefix = 'headgate-playground-';

/**
 * Returns undefined if the browser keeps nothing here, has no room, or kept something unreadable.
 * @template T
 * @param {() => T} act
 * @returns {T | undefined}
 */
function attempt(act) {
  try {
    return act();
  } catch {
    return undefined;
  }
}
