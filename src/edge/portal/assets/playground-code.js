import { codeBlock, element } from './playground-dom.js';

/** Shows the request of the playground as program code. */

/** @param {unknown} value */
function toPython(value) {
  return JSON.stringify(value, null, 4).replaceAll(
    /"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b/g,
    (word) => ({ true: 'True', false: 'False', null: 'None' })[word] ?? word,
  );
}

/** Returns a request as arguments of a call in Python. @param {unknown} body */
export const pythonArguments = (body) => `**${toPython(body)}`;

/**
 * @param {string} url
 * @param {unknown} body
 * @param {readonly string[]} headers A shell reads them in double quotes, for the variable with the key.
 */
export function curl(url, body, headers) {
  const quoted = `'${JSON.stringify(body, null, 2).replaceAll("'", String.raw`'\''`)}'`;
  const lines = headers.map((header) => `  -H "${header}" \\\n`).join('');
  return `curl -N ${url} \\\n${lines}  -H 'Content-Type: application/json' \\\n  -d ${quoted}`;
}

/**
 * @param {string} title
 * @param {string} text
 * @param {boolean} isOpen
 */
export function snippetView(title, text, isOpen) {
  const details = document.createElement('details');
  details.name = 'snippet';
  details.open = isOpen;
  const [language = ''] = title.split(' ');
  details.append(element('summary', '', title), codeBlock(text, language === 'curl' ? 'bash' : language));
  return details;
}
