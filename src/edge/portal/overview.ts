import { parseId } from '#base/id.ts';
import { engineTroubles, modelStatus } from '#edge/portal/engines/engines.ts';
import { page, readKeys } from '#edge/portal/frame/frame.ts';
import { balanceWarning, readRunway, readWallet, type Runway, unknownBalance } from '#edge/portal/money/money.ts';
import {
  counted,
  empty,
  figures,
  html,
  type Html,
  isChat,
  type KeyAnswer,
  type ListAnswer,
  type MaybeHtml,
  type ModelAnswer,
  pathWith,
  type PortalParts,
  type RequestAnswer,
  sampleModel,
  snippetList,
  snippetsOf,
  type SummaryAnswer,
  usd,
  type Visit,
  type WalletAnswer,
} from '#edge/portal/ui/ui.ts';
import { requestsTable } from '#edge/portal/usage/usage.ts';

const requestsShown = 8;

interface Seen {
  readonly summary: SummaryAnswer | null;
  readonly wallet: WalletAnswer | null;
  /** Null if the visitor may not see the wallet, or while the wallet is unavailable. */
  readonly runway: Runway | null;
  readonly requests: readonly RequestAnswer[] | null;
  readonly keys: readonly KeyAnswer[] | null;
  readonly models: readonly ModelAnswer[];
}

/** Reads everything that the visitor may see, in parallel. */
async function read(visit: Visit, { models, clock }: PortalParts): Promise<Seen> {
  const { get, may, mayOwn } = visit;
  const usage = mayOwn('usage.read');
  const [summary, wallet, requests, keys, list] = await Promise.all([
    usage ? get<SummaryAnswer>('/v1/usage/summary?group_by=day') : null,
    may('wallet.read') ? readWallet(visit) : null,
    usage ? get<ListAnswer<RequestAnswer>>(`/v1/usage/requests?limit=${requestsShown}`) : null,
    may('keys') ? readKeys(visit) : null,
    models(parseId('org', visit.organizationId) ?? ''),
  ]);
  const now = { nowMs: clock.now(), organization: '' };
  const runway = wallet === null ? null : await readRunway(visit, wallet, now);
  return { summary, wallet, runway, requests: requests?.data ?? null, keys, models: list };
}

export async function overviewPage(visit: Visit, parts: PortalParts): Promise<Response> {
  const [seen, troubles] = await Promise.all([read(visit, parts), engineTroubles(visit)]);
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
      : html`${live} ${firstSteps(visit, seen)}`;
  return page(visit, { title: 'Overview', body });
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
            note: `${counted(summary.totals.num_model_requests, 'request')}, days and months by UTC`,
          },
        ];
  const money =
    wallet === null
      ? []
      : [
          {
            label: 'Balance',
            value: html`<a href="/portal/wallet">${usd(wallet.balance)}</a>`,
            note: wallet.held === '0' ? 'nothing held' : `${usd(wallet.held)} held by running requests`,
          },
        ];
  return figures([...money, ...spend]);
}

function models(list: readonly ModelAnswer[]): Html {
  const body =
    list.length === 0
      ? empty(
          'No model can be used yet',
          html`Put an engine file into the engines folder, such as those of <code>engines/examples</code>, then run
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
      ? empty('No requests yet', 'The first steps make one. It then stands here, with what it cost.')
      : requestsTable(list, (id) => names.get(id) ?? html`<span class="quiet">${id}</span>`, { isOfDays: false });
  return html`<section aria-labelledby="requests-title">
    <div class="heading">
      <h2 id="requests-title">Last requests</h2>
      <div class="actions"><a href="/portal/usage">All usage</a></div>
    </div>
    ${body}
  </section>`;
}

const firstQuestion = 'What is a headgate? Answer in one sentence.';

const playgroundStep = (isFirst: boolean): Html =>
  html`<li>
    <h3>A model’s answer</h3>
    <p>Ask one here, without a key: its text as it comes, what it cost to the last digit, and why.</p>
    <p>
      <a
        class="${isFirst ? 'button primary' : 'button'}"
        href="${pathWith('/portal/playground', { message: isFirst ? firstQuestion : '' })}"
        >${isFirst ? 'Ask a model' : 'To the playground'}</a
      >
    </p>
  </li>`;

/** A user who came by the link of the first start has no other way to sign in yet. */
const passwordStep = html`<li>
  <h3>A password</h3>
  <p>You have none yet: with one you come back by your e-mail address, without another link.</p>
  <p><a class="button" href="/portal/account#password-title">Set a password</a></p>
</li>`;

function firstSteps({ origin, may, signedIn }: Visit, { models: list, keys, requests: asked }: Seen): MaybeHtml {
  const model = sampleModel(list);
  if (model === undefined) return null;
  const active = keys?.filter(({ status, held }) => status === 'active' && !held).length ?? 0;
  const key = may('keys')
    ? html`<li>
        <h3>A key for your program</h3>
        <p>
          ${active === 0 ? 'There is none yet.' : `There ${active === 1 ? 'is' : 'are'} ${counted(active, 'active key')}.`}
          Give each program one of its own: its secret is shown once, when it is made.
        </p>
        <p><a class="button" href="/portal/keys/new">Make a key</a></p>
      </li>`
    : html`<li>
        <h3>A key for your program</h3>
        <p>Keys for programs are made by the owners and administrators of this organization: ask one of them.</p>
      </li>`;
  const credit = may('wallet.book')
    ? html`<li>
        <h3>Credit</h3>
        <p>Requests are paid from the balance, and refused once it is used up.</p>
        <p><a class="button" href="/portal/wallet?open=credits">Add credit</a></p>
      </li>`
    : null;
  return html`<section class="steps" aria-labelledby="steps-title">
    <h2 id="steps-title">First steps</h2>
    <ol>
      ${list.some(isChat) ? playgroundStep(asked?.length === 0) : null} ${key}
      <li>
        <h3>Where the lines below find it</h3>
        <div class="code">
          <pre id="export" tabindex="0">export HEADGATE_API_KEY=sk-hg-…</pre>
        </div>
      </li>
      <li>
        <h3>The same request, three ways</h3>
        <p>
          Any OpenAI library works: change base URL and key, nothing else. A model that is not running starts by the
          first request.
        </p>
        ${snippetList(snippetsOf({ origin, model, secret: null }).slice(0, 3))}
      </li>
      ${credit} ${signedIn.member.hasPassword ? null : passwordStep}
    </ol>
  </section>`;
}
