import { codeBlock, element } from './playground-dom.js';

/** Shows the request of the playground as program code. */

/** @param {unknown} value */
function toPython(value) {
  return JSON.stringify(value, null, 4).replaceAll(
    /"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b/g,
    (word) => ({ true: 'True', false: 'False', null: 'None' })[word] ?? word,
  );
}

/**
 * Returns a request as arguments of a call of a Python library, which accepts only fields that it knows.
 * @param {Record<string, unknown>} body
 * @param {readonly string[]} unknown Fields that the library does not know.
 */
export function pythonArguments(body, unknown) {
  const isUnknown = (/** @type {[string, unknown]} */ [name]) => unknown.includes(name);
  const fields = Object.entries(body);
  const known = Object.fromEntries(fields.filter((field) => !isUnknown(field)));
  const extra = Object.fromEntries(fields.filter(isUnknown));
  return `**${toPython(Object.keys(extra).length === 0 ? known : { ...known, extra_body: extra })}`;
}

/** @param {string} url @param {unknown} body */
export function curl(url, body) {
  const quoted = `'${JSON.stringify(body, null, 2).replaceAll("'", String.raw`'\''`)}'`;
  return `curl -N ${url} \\\n  -H "Authorization: Bearer $HEADGATE_API_KEY" \\\n  -H 'Content-Type: application/json' \\\n  -d ${quoted}`;
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
