import { byId } from './playground-dom.js';
import { protocolOf } from './playground-protocols.js';

/** The settings of requests, and presets of them. */

/**
 * @typedef {Record<string, string>} Values What each field contains, by the field's id.
 * @typedef {{ name: string, values: Values }} Preset
 */

const numbers = ['temperature', 'top-p', 'max-tokens', 'seed'];
const ids = ['protocol', 'system', ...numbers, 'stop-sequences', 'effort', 'schema', 'tools'];
const presetsMax = 50;

/** A setting that cannot be sent, with its field. */
export class SettingError extends Error {
  /**
   * @param {string} message
   * @param {HTMLElement} field
   */
  constructor(message, field) {
    super(message);
    this.field = field;
  }
}

/** @param {string} id */
function fieldOf(id) {
  const field = document.getElementById(id);
  if (field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement || field instanceof HTMLSelectElement)
    return field;
  throw new Error(`there is no field ${id}`);
}

/** @param {string} id */
const textOf = (id) => fieldOf(id).value.trim();

/**
 * @param {string} id
 * @param {string} label
 * @param {string} example
 */
function numberOf(id, label, example) {
  const text = textOf(id);
  if (text === '') return undefined;
  const value = Number(text);
  if (Number.isFinite(value)) return value;
  throw new SettingError(`${label} must be a number, such as ${example}.`, fieldOf(id));
}

/**
 * @param {string} id
 * @param {string} label
 * @returns {unknown} undefined if the field is empty
 */
function jsonOf(id, label) {
  const text = textOf(id);
  if (text === '') return undefined;
  try {
    return /** @type {unknown} */ (JSON.parse(text));
  } catch (error) {
    throw new SettingError(`${label} must be valid JSON: ${/** @type {Error} */ (error).message}.`, fieldOf(id));
  }
}

function toolsOf() {
  const tools = jsonOf('tools', 'Tools');
  if (tools === undefined) return undefined;
  if (Array.isArray(tools) && tools.every((tool) => typeof tool === 'object' && tool !== null))
    return /** @type {import('./playground-protocols.js').Tool[]} */ (tools);
  const message = 'Tools must be a JSON array, such as [{"type": "function", "function": {"name": "now"}}].';
  throw new SettingError(message, fieldOf('tools'));
}

function responseFormatOf() {
  const schema = jsonOf('schema', 'JSON schema');
  if (schema === undefined) return undefined;
  if (typeof schema === 'object' && schema !== null && !Array.isArray(schema))
    return { type: 'json_schema', json_schema: { name: 'answer', schema } };
  throw new SettingError('JSON schema must be a JSON object, such as {"type": "object"}.', fieldOf('schema'));
}

/** Returns the system prompt, '' for none. */
export const systemPrompt = () => textOf('system');

/** Returns the chosen protocol. */
export const chosenProtocol = () => protocolOf(textOf('protocol'));

/** @param {import('./playground-protocols.js').Protocol} protocol */
function rejectLacking({ lacks }) {
  const set = lacks.find((id) => textOf(id) !== '');
  if (set === undefined) return;
  const field = fieldOf(set);
  const label = field.labels?.[0]?.textContent ?? set;
  throw new SettingError(`${label} is not part of this protocol. Clear it, or choose another protocol.`, field);
}

/** Returns the fields of a request; undefined for what is not set. @throws {SettingError} */
export function requestFields() {
  rejectLacking(chosenProtocol());
  const stop = fieldOf('stop-sequences')
    .value.split('\n')
    .filter((line) => line !== '');
  const effort = textOf('effort');
  return {
    temperature: numberOf('temperature', 'Temperature', '0.7'),
    top_p: numberOf('top-p', 'Top P', '0.9'),
    max_tokens: numberOf('max-tokens', 'Max output tokens', '512'),
    seed: numberOf('seed', 'Seed', '42'),
    stop: stop.length === 0 ? undefined : stop,
    reasoning_effort: effort === '' ? undefined : effort,
    response_format: responseFormatOf(),
    tools: toolsOf(),
  };
}

/** @returns {Values} */
export const settingValues = () => Object.fromEntries(ids.map((id) => [id, fieldOf(id).value]));

/** Fills all fields; the ones without a value are emptied. @param {Values} values */
export function fillSettings(values) {
  for (const id of ids) fieldOf(id).value = values[id] ?? '';
}

/** Saves the settings under names in this browser. */
export class Presets {
  /**
   * @param {import('./playground-store.js').Store} store
   * @param {() => void} onLoaded
   */
  constructor(store, onLoaded) {
    this.store = store;
    this.list = byId('preset', HTMLSelectElement);
    this.name = byId('preset-name', HTMLInputElement);
    this.result = byId('preset-result', HTMLParagraphElement);
    this.remove = byId('preset-delete', HTMLButtonElement);
    this.list.addEventListener('change', () => {
      const preset = this.#chosen();
      if (preset !== undefined) fillSettings(preset.values);
      this.name.value = preset?.name ?? '';
      this.#show(this.#all(), preset?.name);
      onLoaded();
    });
    byId('preset-save', HTMLButtonElement).addEventListener('click', () => this.#save());
    this.remove.addEventListener('click', () => this.#delete());
    this.name.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter') return;
      event.preventDefault();
      this.#save();
    });
    this.#show(this.#all());
  }

  /** @returns {Preset[]} */
  #all() {
    const kept = this.store.presets();
    return Array.isArray(kept) ? /** @type {Preset[]} */ (kept) : [];
  }

  #chosen() {
    return this.#all().find(({ name }) => name === this.list.value);
  }

  #save() {
    const name = this.name.value.trim();
    const others = this.#all().filter((preset) => preset.name !== name);
    if (name === '') {
      this.result.textContent = 'Enter a name for the preset.';
      this.name.focus();
      return;
    }
    if (others.length >= presetsMax) {
      this.result.textContent = `This browser has ${presetsMax} presets. Delete one first.`;
      return;
    }
    const all = [...others, { name, values: settingValues() }].toSorted((one, other) =>
      one.name.localeCompare(other.name),
    );
    this.#keep(all, `Saved in this browser as “${name}”.`, name);
  }

  #delete() {
    const { value } = this.list;
    const rest = this.#all().filter(({ name }) => name !== value);
    this.#keep(rest, `Deleted “${value}”. The settings stay as they are.`);
    this.list.focus();
  }

  /**
   * @param {Preset[]} presets
   * @param {string} result
   * @param {string} [chosen]
   */
  #keep(presets, result, chosen) {
    const isKept = this.store.keepPresets(presets);
    this.result.textContent = isKept ? result : 'The browser has no room for it. Delete a preset first.';
    this.#show(this.#all(), chosen);
  }

  /**
   * @param {Preset[]} presets
   * @param {string} [chosen]
   */
  #show(presets, chosen = '') {
    const options = ['', ...presets.map(({ name }) => name)].map(
      (name) => new Option(name === '' ? 'none' : name, name),
    );
    this.list.replaceChildren(...options);
    this.list.value = options.some(({ value }) => value === chosen) ? chosen : '';
    this.remove.disabled = this.list.value === '';
  }
}
