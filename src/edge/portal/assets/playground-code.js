import { element } from './playground-dom.js';

/** Shows the request of the playground as program code. */

/** @param {unknown} value */
function toPython(value) {
  return JSON.stringify(value, null, 4).replaceAll(
    /"(?:[^"\\]|\\.)*"|\b(?:true|false|null)\b/g,
    (word) => ({ true: 'True', false: 'False', null: 'None' })[word] ?? word,
  );
}

/**
 * Returns the request as programs that read the key from HEADGATE_API_KEY.
 * @param {string} origin
 * @param {Record<string, unknown>} body
 */
export function snippetsOf(origin, body) {
  const quoted = `'${JSON.stringify(body, null, 2).replaceAll("'", String.raw`'\''`)}'`;
  const base = `${origin}/v1`;
  // The library accepts OpenAI's fields as arguments. Fields that Headgate adds go into extra_body.
  const { usage, ...known } = body;
  return {
    curl: `curl -N ${base}/chat/completions \\\n  -H "Authorization: Bearer $HEADGATE_API_KEY" \\\n  -H 'Content-Type: application/json' \\\n  -d ${quoted}`,
    'Python (openai)': `import os
from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(base)}, api_key=os.environ["HEADGATE_API_KEY"])
stream = client.chat.completions.create(**${toPython({ ...known, extra_body: { usage } })})
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)`,
    'JavaScript (openai)': `import OpenAI from 'openai';

const client = new OpenAI({ baseURL: ${JSON.stringify(base)}, apiKey: process.env.HEADGATE_API_KEY });
const stream = await client.chat.completions.create(${JSON.stringify(body, null, 2)});
for await (const chunk of stream) process.stdout.write(chunk.choices[0]?.delta.content ?? '');`,
  };
}

/**
 * @param {string} title
 * @param {string} text
 * @param {number} at
 */
export function snippetView(title, text, at) {
  const details = document.createElement('details');
  details.name = 'snippet';
  details.open = at === 0;
  const code = element('div', 'code');
  const pre = element('pre', '', text);
  pre.id = `playground-code-${at}`;
  pre.tabIndex = 0;
  const button = element('button', 'copy', 'Copy');
  button.type = 'button';
  button.dataset['copy'] = pre.id;
  code.append(pre, button);
  details.append(element('summary', '', title), code);
  return details;
}
