import { parseId } from '#base/id.ts';
import type { KeyAnswer } from '#edge/contract/keys.ts';
import type { ListAnswer } from '#edge/contract/lists.ts';
import type { ModelAnswer } from '#edge/contract/models.ts';
import type { ProjectAnswer } from '#edge/contract/projects.ts';
import type { UsageRequestAnswer } from '#edge/contract/requests.ts';
import type { UsageSummaryAnswer } from '#edge/contract/usage.ts';
import type { WalletAnswer } from '#edge/contract/wallet.ts';
import { modelStatus } from '#edge/portal/engines/engines.ts';
import { assets, page, readKeys } from '#edge/portal/frame/frame.ts';
import { balanceWarning, readRunway, readWallet, type Runway, unknownBalance } from '#edge/portal/money/money.ts';
import {
  chart,
  count,
  counted,
  empty,
  figures,
  headerOf,
  html,
  type Html,
  type MaybeHtml,
  pathWith,
  type PortalParts,
  table,
  usd,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { requestsTable } from '#edge/portal/usage/usage.ts';
import { areAway, bringBack, firstExamples, firstSteps } from './first-steps.ts';
import { troubles } from './troubles.ts';

const requestsShown = 8;

interface Seen {
  readonly summary: UsageSummaryAnswer | null;
  readonly wallet: WalletAnswer | null;
  /** Null if the visitor may not see the wallet, or while the wallet is unavailable. */
  readonly runway: Runway | null;
  readonly requests: readonly UsageRequestAnswer[] | null;
  readonly keys: readonly KeyAnswer[] | null;
  readonly models: readonly ModelAnswer[];
}

/** Reads everything that the visitor may see, in parallel. */
async function read(visit: Visit, { models, clock }: PortalParts): Promise<Seen> {
  const { get, may, mayOwn } = visit;
  const usage = mayOwn('usage.read');
  const [summary, wallet, requests, keys, list] = await Promise.all([
    usage ? get<UsageSummaryAnswer>('/v1/usage/summary?group_by=day') : null,
    may('wallet.read') ? readWallet(visit) : null,
    usage ? get<ListAnswer<UsageRequestAnswer>>(`/v1/usage/requests?limit=${requestsShown}`) : null,
    may('keys') ? readKeys(visit) : null,
    models(parseId('org', visit.organizationId) ?? ''),
  ]);
  const now = { nowMs: clock.now(), organization: '' };
  const runway = wallet === null ? null : await readRunway(visit, wallet, now);
  return { summary, wallet, runway, requests: requests?.data ?? null, keys, models: list };
}

export async function overviewPage(visit: Visit, parts: PortalParts): Promise<Response> {
  const isPoll = headerOf(visit.context, 'x-poll') !== null;
  const isWhole = !isPoll && visit.mayOwn('usage.read');
  const nowMs = parts.clock.now();
  const [seen, wrong, trend, projects] = await Promise.all([
    read(visit, parts),
    troubles(visit, parts),
    isWhole ? trendSection(visit, nowMs) : null,
    isWhole ? projectsSection(visit, nowMs) : null,
  ]);
  const warning = balance(visit, seen);
  const isAway = areAway(visit, parts);
  const progress = { ...seen, hasAnswer: hasAnswer(seen) };
  const steps = isAway ? null : firstSteps(visit, progress);
  // A visitor without requests needs the first steps, and the rest is empty. Without credit the first step would fail.
  const [before, after] = seen.requests?.length === 0 && warning === null ? [steps, null] : [null, steps];
  const live = html`<div
    id="live"
    hx-get="/"
    hx-select="#live"
    hx-trigger="every 15s"
    hx-swap="outerHTML"
    hx-headers='{"X-Poll":"1"}'
  >
    ${before} ${wrong} ${warning} ${numbers(seen, nowMs)} ${models(seen.models)} ${requests(seen)} ${after}
  </div>`;
  const body = html`${live} ${trend} ${projects} ${isAway ? bringBack(visit) : firstExamples(visit, progress)}`;
  return page(visit, { title: 'Overview', body, script: assets.chart });
}

/** Checks whether a request was answered, among the latest ones and those of this month. */
const hasAnswer = ({ requests, summary }: Seen): boolean =>
  (summary?.totals.outcomes.completed ?? 0) > 0 || requests?.some(({ outcome }) => outcome === 'completed') === true;

const dayMs = 86_400_000;
const trendDays = 30;

/** Shows what was spent on each of the last days; nothing before the first request. */
async function trendSection({ get }: Visit, nowMs: number): Promise<MaybeHtml> {
  const firstMs = nowMs - (nowMs % dayMs) - (trendDays - 1) * dayMs;
  const from = new Date(firstMs).toISOString();
  const { data } = await get<UsageSummaryAnswer>(pathWith('/v1/usage/summary', { from, group_by: 'day' }));
  if (data.every(({ num_model_requests: requests }) => requests === 0)) return null;
  const points = Array.from({ length: trendDays }, (_, index) =>
    new Date(firstMs + index * dayMs).toISOString().slice(0, 10),
  );
  const byDay = new Map(data.map(({ day, cost }) => [day, cost]));
  const costs = points.map((day) => byDay.get(day) ?? '0');
  const spent = points.flatMap((day, index) => (costs[index] === '0' ? [] : [[day, usd(costs[index] ?? '0')]]));
  return html`<section aria-labelledby="trend-title">
    <h2 id="trend-title">Spend of the last ${trendDays} days</h2>
    ${chart({
      title: `Spend of the last ${trendDays} days, by day`,
      kind: 'bars',
      unit: 'usd',
      points,
      series: [{ name: 'Spend', values: costs.map(Number), labels: costs.map(usd) }],
      zoom: '/portal/usage',
    })}
    <details class="fold">
      <summary>Spend by day</summary>
      ${table({ caption: 'Spend by day (UTC)', columns: [{ title: 'Day (UTC)' }, { title: 'Spend', isNumber: true }], rows: spent.toReversed() })}
    </details>
  </section>`;
}

const projectsShown = 5;

/** Shows which projects spent most in the same days; nothing if all spending is of one project. */
async function projectsSection(visit: Visit, nowMs: number): Promise<MaybeHtml> {
  const from = new Date(nowMs - (nowMs % dayMs) - (trendDays - 1) * dayMs).toISOString();
  const path = pathWith('/v1/usage/summary', { from, group_by: 'project_id' });
  const { data } = await visit.get<UsageSummaryAnswer>(path);
  if (data.length < 2) return null;
  const most = data.toSorted((a, b) => Number(b.cost) - Number(a.cost)).slice(0, projectsShown);
  const rows = await Promise.all(
    most.map(async ({ project_id: id = '', cost, num_model_requests: asked }) => {
      const found = visit.may('projects') ? await visit.find<ProjectAnswer>(`/v1/projects/${id}`) : null;
      const href = pathWith('/portal/usage', { by: 'model', project: id });
      return [html`<a href="${href}">${found?.name ?? id}</a>`, count(asked), usd(cost)];
    }),
  );
  const columns = [
    { title: 'Project', isWide: true },
    { title: 'Requests', isNumber: true },
    { title: 'Spend', isNumber: true },
  ];
  return html`<section aria-labelledby="projects-title">
    <div class="heading">
      <h2 id="projects-title">Spend by project</h2>
      <div class="actions"><a href="${pathWith('/portal/usage', { by: 'project_id' })}">All projects</a></div>
    </div>
    ${table({ caption: `Projects that spent most in the last ${trendDays} days`, columns, rows })}
  </section>`;
}

function balance({ may }: Visit, { wallet, runway }: Seen): MaybeHtml {
  if (wallet !== null && runway !== null) return balanceWarning(wallet, runway, may('wallet.book'));
  return may('wallet.read') ? unknownBalance() : null;
}

function numbers({ summary, wallet }: Seen, nowMs: number): Html {
  const today = new Date(nowMs).toISOString().slice(0, 10);
  const ofToday = summary?.data.find(({ day }) => day === today);
  const spend =
    summary === null
      ? []
      : [
          {
            label: 'Spent today',
            value: usd(ofToday?.cost ?? '0'),
            note: counted(ofToday?.num_model_requests ?? 0, 'request'),
          },
          {
            label: 'Spent this month',
            value: usd(summary.totals.cost),
            note: `${counted(summary.totals.num_model_requests, 'request')}, days and months in UTC`,
          },
        ];
  const money =
    wallet === null
      ? []
      : [
          {
            label: 'Balance',
            value: html`<a href="/portal/wallet">${usd(wallet.balance)}</a>`,
            note: wallet.held === '0' ? 'no holds' : `${usd(wallet.held)} held by running requests`,
          },
        ];
  return figures([...money, ...spend]);
}

function models(list: readonly ModelAnswer[]): Html {
  const body =
    list.length === 0
      ? empty(
          'No models yet',
          html`Add an engine file to the engines folder, for example from <code>engines/examples</code>. Then run
            <code>npx headgate engines reload</code>.`,
        )
      : html`<ul class="models">
          ${list.map((model) => html`<li><a href="/portal/models/${encodeURIComponent(model.id)}">${model.id}</a> ${modelStatus(model)}</li>`)}
        </ul>`;
  return html`<section aria-labelledby="models-title">
    <h2 id="models-title">Models</h2>
    ${body}
  </section>`;
}

function requests({ requests: list, keys }: Seen): MaybeHtml {
  if (list === null) return null;
  const names = new Map(keys?.map(({ id, name }) => [id, name]));
  const body =
    list.length === 0
      ? empty('No requests yet', 'Follow the first steps to send one. It appears here with its cost.')
      : requestsTable(list, (id) => names.get(id) ?? html`<span class="quiet">${id}</span>`, { isOfDays: false });
  return html`<section aria-labelledby="requests-title">
    <div class="heading">
      <h2 id="requests-title">Recent requests</h2>
      <div class="actions"><a href="/portal/usage">All usage</a></div>
    </div>
    ${body}
  </section>`;
}
