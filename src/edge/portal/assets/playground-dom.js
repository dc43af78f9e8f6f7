/** Elements of the playground. Texts are always text nodes. */

/**
 * @template {HTMLElement} T
 * @param {string} id
 * @param {new () => T} kind
 * @returns {T}
 */
export function byId(id, kind) {
  const found = document.getElementById(id);
  if (!(found instanceof kind)) throw new Error(`there is no ${id}`);
  return found;
}

/**
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {string} className
 * @param {string} [text]
 * @returns {HTMLElementTagNameMap[K]}
 */
export function element(tag, className, text = '') {
  const made = document.createElement(tag);
  if (className !== '') made.className = className;
  made.textContent = text;
  return made;
}

/**
 * @param {string} className
 * @param {string} text
 * @param {(button: HTMLButtonElement) => void} act
 */
export function action(className, text, act) {
  const button = element('button', className, text);
  button.type = 'button';
  button.addEventListener('click', () => act(button));
  return button;
}

let blocks = 0;

/**
 * Returns a text in a box with a copy button, which portal.js serves.
 * @param {string} text
 * @param {string} [language] in which `highlight` colors it
 */
export function codeBlock(text, language = '') {
  const code = element('div', 'code');
  const pre = element('pre', '', text);
  pre.id = `playground-block-${blocks++}`;
  pre.tabIndex = 0;
  if (language !== '') pre.dataset['language'] = language.toLowerCase();
  const button = element('button', 'copy', 'Copy');
  button.type = 'button';
  button.dataset['copy'] = pre.id;
  code.append(pre, button);
  return code;
}

/**
 * Runs a function at Ctrl+Enter, or Command+Enter, within an element.
 * @param {HTMLElement} within
 * @param {() => Promise<void>} run
 */
export function onCtrlEnter(within, run) {
  within.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    void run();
  });
}

/**
 * Copies a text. Without a clipboard, outside of secure contexts, the element that shows the text is selected for the
 * reader to copy by hand.
 * @param {HTMLButtonElement} button
 * @param {string} text
 * @param {Element} shown
 */
export async function copyText(button, text, shown) {
  const label = button.dataset['label'] ?? button.textContent;
  button.dataset['label'] = label;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    getSelection()?.selectAllChildren(shown);
    button.textContent = 'Selected';
  }
  setTimeout(() => {
    button.textContent = label;
  }, 2000);
}
