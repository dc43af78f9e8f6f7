import { type EngineAnswer, formToken, html, type MaybeHtml, notice, type Visit } from '#edge/portal/ui/ui.ts';
import { enginePath, failureText } from './engine-words.ts';

/**
 * Lists engine problems that an operator has to fix, with a retry button. Returns null for visitors who may not manage
 * engines.
 */
export async function engineTroubles(visit: Visit): Promise<MaybeHtml> {
  if (!visit.may('engines')) return null;
  const asked = await visit.send<{ readonly data: readonly EngineAnswer[] }>('GET', '/v1/admin/engines');
  if (!asked.ok) return null;
  return asked.body.data.flatMap((engine) => trouble(visit, engine) ?? []);
}

function trouble(visit: Visit, { id, state, last_failure: failure, rollout }: EngineAnswer) {
  const link = html`<a href="${enginePath(id)}">${id}</a>`;
  if (state === 'failed' || state === 'retrying') {
    return notice(
      'bad',
      html`<p><strong>The engine ${link} failed.</strong> ${failure === null ? null : failureText(failure)}</p>
        <form class="buttons" method="post" action="${enginePath(id, '/start')}">
          ${formToken(visit)}<button>Retry ${id}</button> <a href="${enginePath(id)}">Cause and log</a>
        </form>`,
    );
  }
  if (rollout?.state !== 'refused') return null;
  return notice(
    'bad',
    html`<p>
      <strong>The new version of ${link} was rejected. The old version stays in use.</strong> ${rollout.message}
    </p>`,
  );
}
