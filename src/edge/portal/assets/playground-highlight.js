import { element } from './playground-dom.js';

/** Colors code, where it takes little time. */

/** @typedef {import('./playground-highlighter.js').Piece} Piece */

const timeoutMs = 1000;
const charactersMax = 50_000;

/** @type {Promise<void>} */
let last = Promise.resolve();

/**
 * Colors each block of code with a known language, one after the other. The text stays the same.
 * @param {Element} root
 */
export function highlight(root) {
  /** @type {NodeListOf<HTMLPreElement>} */
  const found = root.querySelectorAll('pre[data-language]');
  for (const pre of found) last = last.then(() => color(pre));
}

/** @param {HTMLPreElement} pre */
async function color(pre) {
  const { language = '' } = pre.dataset;
  const text = pre.textContent;
  if (!pre.isConnected || text.length > charactersMax) return;
  const pieces = await divide(text, language);
  if (pieces === null) return;
  const nodes = pieces.map(([kind, part]) => (kind === '' ? part : element('span', `code-${kind}`, part)));
  pre.replaceChildren(...nodes);
}

/**
 * @param {string} text
 * @param {string} language
 * @returns {Promise<readonly Piece[] | null>} null if it takes too long, or the browser has no such workers
 */
function divide(text, language) {
  return new Promise((resolve) => {
    const worker = new Worker(new URL('playground-highlighter.js', import.meta.url), { type: 'module' });
    /** @param {readonly Piece[] | null} pieces */
    const end = (pieces) => {
      clearTimeout(timer);
      worker.terminate();
      resolve(pieces);
    };
    const timer = setTimeout(() => end(null), timeoutMs);
    worker.addEventListener('message', ({ data }) => end(/** @type {readonly Piece[]} */ (data)));
    worker.addEventListener('error', () => end(null));
    worker.postMessage({ text, language });
  });
}
