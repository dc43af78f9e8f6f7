import type { AuditEntryAnswer } from '#edge/contract/audit.ts';
import type { EngineListAnswer } from '#edge/contract/engines.ts';
import type { ListAnswer } from '#edge/contract/lists.ts';
import {
  empty,
  html,
  type Html,
  type MaybeHtml,
  notice,
  pathWith,
  table,
  timeOf,
  timeToSecond,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { enginePath } from './engine-words.ts';

/** Changes of engines, from the audit log. */

const reloadsRead = 50;
const shownMax = 8;

export async function readReloads({ get, ownOrganizationId }: Visit): Promise<readonly AuditEntryAnswer[]> {
  const path = pathWith('/v1/audit', {
    action: 'engines.reloaded',
    limit: reloadsRead,
    organization_id: ownOrganizationId,
  });
  return (await get<ListAnswer<AuditEntryAnswer>>(path)).data;
}

/** Splits a field of the audit log that holds ids, separated by spaces. */
function idsOf({ after }: AuditEntryAnswer, name: string): readonly string[] {
  const text = after?.[name];
  return typeof text === 'string' && text !== '' ? text.split(' ') : [];
}

const kinds = { added: 'Added', changed: 'Changed', removed: 'Removed' } as const;

/** True if a reload of the files changed this engine. */
export function isAbout(change: AuditEntryAnswer, engineId: string): boolean {
  return Object.keys(kinds).some((kind) => idsOf(change, kind).includes(engineId));
}

function idList(ids: readonly string[]): MaybeHtml {
  if (ids.length === 0) return html`<span class="quiet">–</span>`;
  return html`<span class="wrap"
    >${ids.map((id, index) => html`${index === 0 ? '' : ', '}<a href="${enginePath(id)}">${id}</a>`)}</span
  >`;
}

/** Shows why the engine files were rejected, until the gateway loads valid files. */
export function refusedFiles({ read_at: readAt, refused }: EngineListAnswer['files']): MaybeHtml {
  if (refused === null) return null;
  return notice(
    'bad',
    html`<p>
        <strong
          >The engine files were rejected at ${timeToSecond(refused.at * 1000)}. None of their changes apply.</strong
        >
        Engines use the files loaded at ${timeToSecond(readAt * 1000)}.
      </p>
      <p class="lines">${refused.problems.join('\n')}</p>
      <p>Fix the problems, then reload engine files.</p>`,
  );
}

/** Shows why engines that runs declare are left out. */
export function leftOutEngines({ left_out: problems }: EngineListAnswer['files']): MaybeHtml {
  if (problems.length === 0) return null;
  return notice(
    'bad',
    html`<p><strong>Engines that runs declare are left out.</strong></p>
      <p class="lines">${problems.join('\n')}</p>
      <p>Fix the output “engine” of the stack, then apply it again.</p>`,
  );
}

/** Lists reloads, newest first. Reloads by SIGHUP are not in the audit log, because no user requested them. */
export function reloadList(
  reloads: readonly AuditEntryAnswer[],
  { read_at: readAt, refused }: EngineListAnswer['files'],
): Html {
  if (reloads.length === 0)
    return empty(
      refused === null ? 'No reloads yet' : 'No successful reloads yet',
      html`Loaded at ${timeToSecond(readAt * 1000)}. Reload (button above or SIGHUP) to apply changes. Reloads by SIGHUP
      are not listed here.`,
    );
  return table({
    caption: 'Reloads of engine files, newest first',
    columns: [{ title: 'Time' }, ...Object.values(kinds).map((title) => ({ title }))],
    rows: reloads
      .slice(0, shownMax)
      .map((reload) => [
        timeOf(reload.created_at, ''),
        ...Object.keys(kinds).map((kind) => idList(idsOf(reload, kind))),
      ]),
  });
}
