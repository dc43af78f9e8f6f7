import type { EngineAnswer } from '#edge/contract/engines.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import { count, counted, formToken, html, notice, type Visit } from '#edge/portal/ui/ui.ts';
import { engineApiPath, enginePath } from './engine-words.ts';

/** Commands of the page of an engine. */

export type EngineCommand = 'start' | 'stop' | 'restart' | 'reset';

const questions = {
  stop: {
    title: 'Stop',
    says: 'The engine accepts no new requests, finishes its running requests, and stays stopped until somebody starts it. Until then requests return 503.',
  },
  restart: {
    title: 'Restart',
    says: 'Each replica is replaced once its successor is ready, if there is room for both. Without room, requests wait for the new replica.',
  },
} as const;

export async function confirmPage(visit: Visit, id: string, command: keyof typeof questions): Promise<Response> {
  const engine = await visit.get<EngineAnswer>(engineApiPath(id));
  const { title, says } = questions[command];
  const { running, waiting } = engine.queue;
  const now =
    running + waiting === 0
      ? html`<p>No requests are running on this engine on this gateway.</p>`
      : html`<p>
          <strong>${counted(running, 'request')} running and ${count(waiting)} waiting on this gateway.</strong>
        </p>`;
  const body = html`<div class="confirm">
    <p>${says}</p>
    ${now}
    <form method="post" action="${enginePath(id, `/${command}`)}">
      ${formToken(visit)}
      <p class="buttons">
        <button class="danger">${title} ${engine.id}</button> <a href="${enginePath(id)}">Cancel</a>
      </p>
    </form>
  </div>`;
  return page(visit, { title: `${title} ${engine.id}?`, body });
}

export async function commandEngine(visit: Visit, id: string, command: EngineCommand): Promise<Response> {
  const done = await visit.send<EngineAnswer>('POST', engineApiPath(id, `/${command}`));
  if (done.ok) return visit.context.redirect(`${enginePath(id)}?notice=${command}`, 303);
  const body = html`${notice('bad', done.refusal.message)}
    <p class="buttons"><a class="button" href="${enginePath(id)}">Back to engine</a></p>`;
  return page(visit, { title: 'Command failed', body, status: statusOf(done.refusal) });
}
