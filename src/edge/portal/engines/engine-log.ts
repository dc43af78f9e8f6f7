import type { EngineLogAnswer } from '#edge/contract/engines.ts';
import { html, type Html, pathWith, queryOf, type Visit } from '#edge/portal/ui/ui.ts';
import { engineApiPath, enginePath } from './engine-words.ts';

/** The log of an engine: its last lines, or those that contain a text. */

const shownLines = 300;
/** Lines at the end of the log that a search reads. */
const searchedLines = 2000;
const queryCharsMax = 200;

const searched = ({ context }: Visit): string => queryOf(context, 'q').trim().slice(0, queryCharsMax);

/** Returns the lines, or why there are none. */
async function readLog(visit: Visit, id: string): Promise<string> {
  const query = searched(visit);
  const tail = query === '' ? shownLines : searchedLines;
  const { data } = await visit.get<EngineLogAnswer>(engineApiPath(id, `/logs?tail=${tail}`));
  const isOne = new Set(data.map(({ replica }) => replica)).size <= 1;
  const lines = data.map(({ replica, line }) => (isOne || replica === null ? line : `${replica} | ${line}`));
  if (lines.length === 0) return 'No log lines yet. Start the engine to see its log.';
  const found = lines.filter((line) => line.toLowerCase().includes(query.toLowerCase())).slice(-shownLines);
  return found.length === 0 ? `None of the last ${lines.length} lines contains this text.` : found.join('\n');
}

export async function logOf(visit: Visit, id: string): Promise<Html> {
  const text = await readLog(visit, id);
  const query = searched(visit);
  const state =
    query === '' ? `Last ${shownLines} lines.` : `Lines with this text among the last ${searchedLines} lines.`;
  const field = html`<input
    type="search"
    name="q"
    value="${query}"
    aria-label="Search the log"
    placeholder="Text in the log"
    maxlength="${queryCharsMax}"
    autocomplete="off"
    spellcheck="false"
  />`;
  return html`<form class="find" method="get" action="${enginePath(id)}#log-title" role="search" aria-label="Log">
      ${field} <button>Search</button>
    </form>
    <div class="engine-log">
      <pre
        data-log="${pathWith(enginePath(id, '/log'), { q: query })}"
        tabindex="0"
        role="log"
        aria-label="Engine log"
        aria-live="off"
      >
${text}</pre>
      <p class="quiet">
        <span data-log-state>${state}</span>
        <a href="${pathWith(enginePath(id), { q: query })}#log-title">Refresh</a>
        ${query === '' ? null : html`<a href="${enginePath(id)}#log-title">All lines</a>`}
      </p>
    </div>`;
}

/** Returns the lines as plain text, for the page's script. */
export async function engineLog(visit: Visit, id: string): Promise<Response> {
  return visit.context.text(await readLog(visit, id));
}
