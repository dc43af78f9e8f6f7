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

/** The worker, unless the last one took too long. @type {Worker | null} */
let idle = null;

/**
 * @param {string} text
 * @param {string} language
 * @returns {Promise<readonly Piece[] | null>} null if it takes too long, or the browser has no such workers
 */
function divide(text, language) {
  return new Promise((resolve) => {
    const worker = idle ?? new Worker(new URL('playground-highlighter.js', import.meta.url), { type: 'module' });
    idle = worker;
    const heard = new AbortController();
    /** @param {readonly Piece[] | null} pieces */
    const end = (pieces) => {
      clearTimeout(timer);
      heard.abort();
      if (pieces === null) {
        worker.terminate();
        idle = null;
      }
      resolve(pieces);
    };
    const timer = setTimeout(() => end(null), timeoutMs);
    const { signal } = heard;
    worker.addEventListener('message', ({ data }) => end(/** @type {readonly Piece[]} */ (data)), { signal });
    worker.addEventListener('error', () => end(null), { signal });
    worker.postMessage({ text, language });
  });
}
