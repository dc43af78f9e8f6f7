import { parseId } from '#base/id.ts';
import type { KeyAnswer } from '#edge/contract/keys.ts';
import type { ListAnswer } from '#edge/contract/lists.ts';
import type { ModelAnswer } from '#edge/contract/models.ts';
import type { UsageRequestAnswer } from '#edge/contract/requests.ts';
import type { UsageSummaryAnswer } from '#edge/contract/usage.ts';
import type { WalletAnswer } from '#edge/contract/wallet.ts';
import { engineTroubles, modelStatus } from '#edge/portal/engines/engines.ts';
import { assets, page, readKeys } from '#edge/portal/frame/frame.ts';
import { balanceWarning, readRunway, readWallet, type Runway, unknownBalance } from '#edge/portal/money/money.ts';
import {
  chart,
  counted,
  empty,
  figures,
  headerOf,
  html,
  type Html,
  isChat,
  type MaybeHtml,
  pathWith,
  type PortalParts,
  sampleModel,
  snippetList,
  snippetsOf,
  table,
  usd,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { requestsTable } from '#edge/portal/usage/usage.ts';

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
  const [seen, troubles, trend] = await Promise.all([
    read(visit, parts),
    engineTroubles(visit),
    isPoll || !visit.mayOwn('usage.read') ? null : trendSection(visit, parts.clock.now()),
  ]);
  const warning = balance(visit, seen);
  const live = html`<div
    id="live"
    hx-get="/"
    hx-select="#live"
    hx-trigger="every 15s"
    hx-swap="outerHTML"
    hx-headers='{"X-Poll":"1"}'
  >
    ${troubles} ${warning} ${numbers(seen, parts.clock.now())} ${models(seen.models)} ${requests(seen)}
  </div>`;
  // A visitor without requests needs the first steps, and the rest is empty. Without credit the first step would fail.
  const body =
    seen.requests?.length === 0 && warning === null
      ? html`${firstSteps(visit, seen)} ${live}`
      : html`${live} ${trend} ${firstSteps(visit, seen)}`;
  return page(visit, { title: 'Overview', body, script: assets.chart });
}

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

const firstQuestion = 'What is a headgate? Answer in one sentence.';

const playgroundStep = (isFirst: boolean): Html =>
  html`<li>
    <h3>Ask a model</h3>
    <p>The playground needs no API key. It streams the answer and shows its exact cost.</p>
    <p>
      <a
        class="${isFirst ? 'button primary' : 'button'}"
        href="${pathWith('/portal/playground', { message: isFirst ? firstQuestion : '' })}"
        >${isFirst ? 'Ask a model' : 'Open playground'}</a
      >
    </p>
  </li>`;

/** A user who came by the link of the first start has no other way to sign in yet. */
const passwordStep = html`<li>
  <h3>Password</h3>
  <p>You have no password yet. Set one to sign in with your email address instead of a link.</p>
  <p><a class="button" href="/portal/account#password-title">Set a password</a></p>
</li>`;

function firstSteps({ origin, may, signedIn }: Visit, { models: list, keys, requests: asked }: Seen): MaybeHtml {
  const model = sampleModel(list);
  if (model === undefined) return null;
  const active = keys?.filter(({ status, held }) => status === 'active' && !held).length ?? 0;
  const key = may('keys')
    ? html`<li>
        <h3>API key</h3>
        <p>
          ${active === 0 ? 'No active keys yet.' : `${counted(active, 'active key')}.`} Create one key for each program.
          The secret is shown only once.
        </p>
        <p><a class="button" href="/portal/keys/new">Create key</a></p>
      </li>`
    : html`<li>
        <h3>API key</h3>
        <p>Owners and administrators of this organization create API keys. Ask one of them for a key.</p>
      </li>`;
  const credit = may('wallet.book')
    ? html`<li>
        <h3>Credit</h3>
        <p>Requests are paid from the balance, and rejected once the balance is used up.</p>
        <p><a class="button" href="/portal/wallet?open=credits">Add credit</a></p>
      </li>`
    : null;
  return html`<section class="steps" aria-labelledby="steps-title">
    <h2 id="steps-title">First steps</h2>
    <ol>
      ${list.some(isChat) ? playgroundStep(asked?.length === 0) : null} ${key}
      <li>
        <h3>Set the key for the examples</h3>
        <div class="code">
          <pre id="export" tabindex="0">export HEADGATE_API_KEY=sk-hg-…</pre>
        </div>
      </li>
      <li>
        <h3>Send a request</h3>
        <p>
          Any OpenAI library works: change only the base URL and the key. The first request starts a model that is not
          running.
        </p>
        ${snippetList(snippetsOf({ origin, model, secret: null }).slice(0, 3))}
      </li>
      ${credit} ${signedIn.member.hasPassword ? null : passwordStep}
    </ol>
  </section>`;
}
