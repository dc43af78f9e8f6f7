import type { BudgetAnswer } from '#edge/contract/budgets.ts';
import type { HostListAnswer } from '#edge/contract/hosts.ts';
import type { CursorPageAnswer, ListAnswer } from '#edge/contract/lists.ts';
import type { QuarantinedRecordAnswer } from '#edge/contract/usage.ts';
import type { WebhookAnswer } from '#edge/contract/webhooks.ts';
import { engineTroubles } from '#edge/portal/engines/engines.ts';
import { periodNames, scopeOf } from '#edge/portal/money/money.ts';
import { html, type Html, type MaybeHtml, type PortalParts, usd, type Visit } from '#edge/portal/ui/ui.ts';

/**
 * Lists current problems on the overview: one line each, for those who may see it, with a link to where it is fixed. The
 * page refreshes it, so each line costs one small query; a line that cannot be read is left out.
 */

/** Lines about budgets or webhooks at most; the last one links to the rest. */
const linesMax = 3;

/** Share of the amount from which a budget is near its end. */
const nearEnd = 0.8;

const read = async <T>({ send }: Visit, path: string): Promise<T | null> => {
  const asked = await send<T>('GET', path);
  return asked.ok ? asked.body : null;
};

/** Returns null if nothing is wrong. */
export async function troubles(visit: Visit, { platformProblems }: PortalParts): Promise<MaybeHtml> {
  const lists = await Promise.all([
    hostTroubles(visit),
    quarantineTroubles(visit),
    budgetTroubles(visit),
    webhookTroubles(visit),
  ]);
  const ofPlatform = visit.may('books') ? platformProblems().map((text) => html`${text} ${runbook}`) : [];
  const lines = [...ofPlatform, ...lists.flat()];
  const engines = await engineTroubles(visit);
  if (lines.length === 0) return engines;
  // No alert: a screen reader would read it again each time the page refreshes itself.
  return html`${engines}
    <section class="notice bad" aria-labelledby="troubles-title">
      <h2 id="troubles-title">Needs attention</h2>
      <ul class="troubles">
        ${lines.map((line) => html`<li>${line}</li>`)}
      </ul>
    </section>`;
}

const runbook = html`What to do: <code>compose/runbooks.md</code>, “platform.problem”.`;

async function hostTroubles(visit: Visit): Promise<readonly Html[]> {
  const hosts = visit.may('engines') ? await read<HostListAnswer>(visit, '/v1/admin/hosts') : null;
  const lost = hosts?.data.filter(({ reachable }) => !reachable) ?? [];
  return limited(
    lost.map(
      ({ name, trouble }) => html`The host ${name} is unreachable. ${trouble} <a href="/portal/engines">Hosts</a>`,
    ),
    '/portal/engines',
  );
}

async function quarantineTroubles(visit: Visit): Promise<readonly Html[]> {
  if (!visit.may('books')) return [];
  const kept = await read<ListAnswer<QuarantinedRecordAnswer>>(visit, '/v1/admin/quarantine?limit=1');
  if (kept === null || kept.data.length === 0) return [];
  return [
    html`Usage records are in quarantine: PostgreSQL rejected them, and nobody was charged.
      <a href="/portal/quarantine">Retry or discard</a>`,
  ];
}

async function budgetTroubles(visit: Visit): Promise<readonly Html[]> {
  if (!visit.mayOwn('budgets.read')) return [];
  const list = await read<CursorPageAnswer<BudgetAnswer>>(visit, '/v1/budgets?alerted=true&limit=20');
  const near = (list?.data ?? []).flatMap((budget) => {
    const { spent, amount, raise } = budget;
    const share = spent === null ? 0 : Number(spent) / (Number(amount) + Number(raise?.amount ?? '0'));
    return share < nearEnd ? [] : [{ budget, share }];
  });
  if (near.length === 0) return [];
  const shown = near.toSorted((a, b) => b.share - a.share).slice(0, linesMax + 1);
  const names = await namesOf(
    visit,
    shown.map(({ budget }) => budget),
  );
  const lines = shown.map(({ budget, share }) => {
    const { id, amount, period, mode, spent } = budget;
    const state = share >= 1 ? 'is spent' : `is ${Math.floor(share * 100)} % spent`;
    const effect = share >= 1 && mode === 'hard' ? ' Its requests are rejected.' : '';
    const link = visit.may('budgets') ? `/portal/budgets/${id}` : '/portal/budgets';
    return html`The budget of ${scopeOf(budget, names)} ${state}: ${usd(spent ?? '0')} of ${usd(amount)}
      (${periodNames[period]}).${effect} <a href="${link}">Budget</a>`;
  });
  return limited(lines, '/portal/budgets');
}

/** Reads the names of the keys and projects of a few budgets, as far as the visitor may see them. */
async function namesOf(visit: Visit, budgets: readonly BudgetAnswer[]): Promise<ReadonlyMap<string, string>> {
  const named = await Promise.all(
    budgets.map(async ({ scope: { type, id } }) => {
      if (type === 'user' || id === null || !visit.may(type === 'project' ? 'projects' : 'keys')) return null;
      return read<{ id: string; name: string }>(visit, `/v1/${type === 'project' ? 'projects' : 'keys'}/${id}`);
    }),
  );
  return new Map(named.flatMap((one) => (one === null ? [] : [[one.id, one.name] as const])));
}

async function webhookTroubles(visit: Visit): Promise<readonly Html[]> {
  if (!visit.may('webhooks')) return [];
  const list = await read<ListAnswer<WebhookAnswer>>(visit, '/v1/webhooks?limit=100');
  // A webhook that a person disabled is not in trouble.
  const disabled = list?.data.filter(({ disabled_reason: reason }) => reason !== null) ?? [];
  return limited(
    disabled.map(({ id, url, description, disabled_reason: reason }) => {
      const why = reason === 'gone' ? 'the receiver returned 410' : 'no delivery succeeded for three days';
      const name = description === '' ? url : description;
      return html`The webhook ${name} was disabled: ${why}. <a href="/portal/webhooks/${id}">Webhook</a>`;
    }),
    '/portal/webhooks',
  );
}

const limited = (lines: readonly Html[], path: string): readonly Html[] =>
  lines.length <= linesMax ? lines : [...lines.slice(0, linesMax), html`<a href="${path}">And more</a>`];
