import { assets, page, statusOf } from '#edge/portal/frame/frame.ts';
import { actorNames, sentenceOf } from '#edge/portal/people/people.ts';
import {
  type AuditAnswer,
  badge,
  count,
  counted,
  empty,
  type EngineAnswer,
  facts,
  figures,
  formToken,
  html,
  type Html,
  type ListAnswer,
  type MarginAnswer,
  type MaybeHtml,
  notice,
  noticeOf,
  pathWith,
  type PortalParts,
  type PriceAnswer,
  section,
  table,
  timeOf,
  timeToSecond,
  usd,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { isAbout, readReloads } from './engine-changes.ts';
import { duration, engineBadge, enginePath, expectedStartMs, needs, stateWords } from './engine-words.ts';

const dayMs = 86_400_000;
const changesShown = 10;
const logLines = 300;

const commands = ['start', 'stop', 'restart', 'reset'] as const;
export type EngineCommand = (typeof commands)[number];

const notices: Readonly<Record<string, string>> = {
  start: 'The order to start it is given.',
  stop: 'The order to stop it is given: what runs is finished, and it stays stopped until somebody starts it.',
  restart: 'The order to restart it is given: each replica is replaced once its successor is ready.',
  reloaded: 'The engine files are read. Whether this one has changed stands below.',
  reset: 'Its failures are forgotten, and it is tried again by the next request.',
};

const apiPath = (id: string, rest = ''): string => `/v1/admin/engines/${encodeURIComponent(id)}${rest}`;

interface Seen {
  readonly engine: EngineAnswer;
  readonly margin: MarginAnswer | null;
  readonly changes: readonly AuditAnswer[];
  readonly names: ReadonlyMap<string, string>;
  readonly price: PriceAnswer | undefined;
  readonly log: string;
}

/** Returns null if the report is unavailable, so that the rest of the page is shown without it. */
async function readMargin(visit: Visit, { clock }: PortalParts, id: string): Promise<MarginAnswer | null> {
  const to = new Date(clock.now()).toISOString();
  const from = new Date(clock.now() - 30 * dayMs).toISOString();
  const asked = await visit.send<{ models: readonly MarginAnswer[] }>(
    'GET',
    pathWith('/v1/billing/margins', { from, to }),
  );
  return asked.ok ? (asked.body.models.find(({ model }) => model === id) ?? null) : null;
}

async function readLog({ get }: Visit, id: string): Promise<string> {
  const { data } = await get<{ data: readonly { replica: string | null; line: string }[] }>(
    apiPath(id, `/logs?tail=${logLines}`),
  );
  const isOne = new Set(data.map(({ replica }) => replica)).size <= 1;
  return data.map(({ replica, line }) => (isOne || replica === null ? line : `${replica} | ${line}`)).join('\n');
}

async function read(visit: Visit, parts: PortalParts, id: string): Promise<Seen> {
  const engine = await visit.get<EngineAnswer>(apiPath(id));
  // The audit log keeps orders in the organization of the user who gave them.
  const { ownOrganizationId: organization_id } = visit;
  const [margin, orders, reloads, names, log] = await Promise.all([
    readMargin(visit, parts, id),
    visit.get<ListAnswer<AuditAnswer>>(pathWith('/v1/audit', { target_id: id, limit: changesShown, organization_id })),
    readReloads(visit),
    actorNames(visit, organization_id),
    readLog(visit, id),
  ]);
  const changes = [...orders.data, ...reloads.filter((one) => isAbout(one, id))]
    .toSorted((a, b) => b.created_at - a.created_at)
    .slice(0, changesShown);
  return { engine, margin, changes, names, price: parts.prices().find(({ model }) => model === id), log };
}

export async function enginePage(visit: Visit, parts: PortalParts, id: string): Promise<Response> {
  const seen = await read(visit, parts, id);
  const { engine } = seen;
  const said = noticeOf(visit, notices);
  const path = enginePath(id);
  const body = html`${said === undefined ? null : notice('good', said)}
    <div
      id="live"
      hx-get="${path}"
      hx-select="#live"
      hx-trigger="every 3s"
      hx-swap="outerHTML"
      hx-headers='{"X-Poll":"1"}'
    >
      <p class="lead">${engineBadge(engine)} ${stateWords(engine)}</p>
      ${failure(visit, engine)} ${rollout(visit, engine)} ${numbers(seen)}
      ${section('replicas', 'Replicas', replicaTable(engine, parts.clock.now()))}
    </div>
    ${section('log', 'Log', logOf(engine, seen.log))} ${section('money', 'What it earns', marginOf(seen))}
    ${section('file', 'File and orders', fileOf(seen))}`;
  return page(visit, { title: engine.id, actions: buttons(visit, engine), body, script: assets.log });
}

function order(visit: Visit, engine: EngineAnswer, command: EngineCommand, text: string): Html {
  return html`<form method="post" action="${enginePath(engine.id, `/${command}`)}">
    ${formToken(visit)}<button class="primary">${text}</button>
  </form>`;
}

const isDown = ({ state }: EngineAnswer): boolean => ['stopped', 'retrying', 'failed', 'held'].includes(state);

function buttons(visit: Visit, engine: EngineAnswer): MaybeHtml {
  if (engine.state === 'disabled') return null;
  const model = html`<a class="button" href="/portal/models/${encodeURIComponent(engine.id)}">As a model</a>`;
  // For a failed engine, `start` forgets the failures and tries again.
  if (isDown(engine))
    return html`${order(visit, engine, 'start', engine.state === 'failed' || engine.state === 'retrying' ? 'Try again' : 'Start')}
    ${model}`;
  return html`${engine.driver === 'external' ? null : html`<a class="button" href="${enginePath(engine.id, '/restart')}">Restart</a>`}
    <a class="button danger" href="${enginePath(engine.id, '/stop')}">Stop</a> ${model}`;
}

function failure(visit: Visit, engine: EngineAnswer): MaybeHtml {
  const { last_failure: last } = engine;
  if (last === null) return null;
  const again =
    last.retry_at === null
      ? 'It is not tried again by itself.'
      : html`It is tried again by itself at ${timeToSecond(last.retry_at * 1000)}.`;
  return notice(
    'bad',
    html`<p><strong>${last.message}</strong></p>
      ${last.detail === null ? null : html`<pre class="detail" tabindex="0">${last.detail}</pre>`}
      <p>
        ${again} Mend what is said here, read the files again where one was changed, and try again; or forget the
        failure and let the next request try.
      </p>
      <div class="actions">
        ${reloadForm(visit, engine.id)}
        <form method="post" action="${enginePath(engine.id, '/reset')}">
          ${formToken(visit)}<button>Forget the failure</button>
        </form>
      </div>`,
  );
}

/** Button that reloads the files of all engines. The outcome is shown on the page that has the button. */
function reloadForm(visit: Visit, id: string): Html {
  return html`<form method="post" action="/portal/engines-reload">
    ${formToken(visit)}<input type="hidden" name="engine" value="${id}" /><button>Read the files again</button>
  </form>`;
}

function rollout(visit: Visit, { rollout: change, file, id }: EngineAnswer): MaybeHtml {
  if (change === null) return null;
  if (change.state === 'checking') {
    return notice(
      'plain',
      html`<p><strong>A new version of ${file} is being checked.</strong> ${change.message}</p>
        <p>It takes over once its replica has answered; until then the old version serves.</p>`,
    );
  }
  return notice(
    'bad',
    html`<p><strong>The new version of ${file} was refused; the old one goes on.</strong></p>
      <p class="lines">${change.message}</p>
      <p>Mend the file and read the files again.</p>
      ${reloadForm(visit, id)}`,
  );
}

function numbers({ engine, price }: Seen): Html {
  const start = expectedStartMs(engine);
  const amounts =
    price === undefined
      ? html`<span class="quiet">none</span>`
      : `${usd(price.input_per_million)} / ${usd(price.output_per_million)}`;
  return figures([
    {
      label: 'Running',
      value: count(engine.queue.running),
      note: `${count(engine.queue.waiting)} waiting, at this gateway`,
    },
    {
      label: 'Replicas',
      value: count(engine.replicas.length),
      note: `${engine.replicas_min} to ${engine.replicas_max}${engine.pinned ? ', pinned' : ''}`,
    },
    { label: 'Each takes', value: needs(engine), note: engine.driver },
    {
      label: 'A start takes',
      value: start === null ? 'not known yet' : `about ${duration(start)}`,
      note:
        start === null ? 'no start has succeeded yet' : `by the last ${counted(engine.start_times_ms.length, 'start')}`,
    },
    { label: 'Price', value: amounts, note: 'input / output, per million tokens' },
  ]);
}

function replicaTable({ replicas, state }: EngineAnswer, nowMs: number): Html {
  if (replicas.length === 0)
    return empty(
      'No replica runs',
      state === 'failed' || state === 'retrying'
        ? 'None is started before it is tried again, by itself or by the button above.'
        : 'One is started by the next request, or by the button above.',
    );
  return table({
    caption: 'Replicas and where they run',
    columns: [
      { title: 'Replica' },
      { title: 'State' },
      { title: 'For' },
      { title: 'Host' },
      { title: 'GPUs' },
      { title: 'Running', isNumber: true },
      { title: 'Probes' },
    ],
    rows: replicas.map(({ id, state, since, host, gpus, progress, running, healthy }) => [
      html`<code>${id}</code>`,
      html`${badge(state === 'ready' ? 'good' : 'busy', state)}${progress === null ? null : html`<br /><span class="wrap quiet">${progress}</span>`}`,
      duration(nowMs - since * 1000),
      host,
      gpus.length === 0 ? html`<span class="quiet">none</span>` : gpus.join(', '),
      count(running),
      healthy === null ? html`<span class="quiet">none yet</span>` : healthy ? 'well' : badge('bad', 'no answer'),
    ]),
  });
}

function logOf({ id }: EngineAnswer, text: string): Html {
  const none = 'Nothing is written yet, or nothing runs.';
  return html`<div class="engine-log">
    <pre data-log="${enginePath(id, '/log')}" tabindex="0" role="log" aria-label="Log of the engine" aria-live="off">
${text === '' ? none : text}</pre>
    <p class="quiet">
      <span data-log-state>These are the last ${logLines} lines.</span>
      <a href="${enginePath(id)}#log-title">Load again</a>
    </p>
  </div>`;
}

function marginOf({ margin }: Seen): Html {
  if (margin === null) {
    return empty(
      'Nothing in the last 30 days',
      'What requests pay stands here beside what the GPUs of its replicas cost.',
    );
  }
  const { revenue, cost, complete, margin: left, margin_ratio: ratio, gpu_hours: hours, requests } = margin;
  const share = ratio === null ? null : `${Math.round(ratio * 100)} % of the revenue`;
  const busy = hours.busy === null ? '' : `, ${hours.busy.toFixed(2)} of them busy`;
  return html`${figures([
      { label: 'Revenue', value: usd(revenue), note: `${counted(requests, 'request')}, failed ones too` },
      {
        label: 'Cost of its GPUs',
        value: usd(cost),
        note: complete ? `${hours.held.toFixed(2)} GPU-hours${busy}` : 'at least: some GPU-hours have no rate',
      },
      { label: 'Margin', value: left === null ? 'not known' : usd(left), note: share ?? 'of the last 30 days' },
    ])}
    <p class="quiet">Of the last 30 days, by the rate cards on file.</p>`;
}

function fileOf({ engine, changes, names }: Seen): Html {
  const known = facts([
    ['File', html`<code>${engine.file}</code>`],
    ['Name', engine.name],
  ]);
  if (changes.length === 0)
    return html`${known} ${empty('No orders yet', 'Who starts, stops or changes it stands here.')}`;
  return html`${known}
    ${table({
      caption: 'Changes of its file, and orders, newest first',
      columns: [{ title: 'Time' }, { title: 'What', isWide: true }],
      rows: changes.map((change) => [
        timeOf(change.created_at, ''),
        html`<span class="wrap">${sentenceOf(change, names)}</span>`,
      ]),
    })}
    <p class="hint">
      How a new version of the file does stands at the top of this page while it is checked, and when it was refused.
      Once it serves, or the file is read again, that is not kept.
    </p>`;
}

/** Returns the last log lines as plain text, for the page's script. */
export async function engineLog(visit: Visit, id: string): Promise<Response> {
  return visit.context.text(await readLog(visit, id));
}

const questions = {
  stop: {
    title: 'Stop',
    says: 'It takes nothing new, finishes what runs, and stays stopped until somebody starts it: requests are refused with 503.',
  },
  restart: {
    title: 'Restart',
    says: 'Every replica is replaced, each once its successor is ready where there is room for both. Where there is none, requests wait for the start.',
  },
} as const;

export async function confirmPage(visit: Visit, id: string, command: keyof typeof questions): Promise<Response> {
  const engine = await visit.get<EngineAnswer>(apiPath(id));
  const { title, says } = questions[command];
  const { running, waiting } = engine.queue;
  const now =
    running + waiting === 0
      ? html`<p>Nothing runs on it at this gateway just now.</p>`
      : html`<p><strong>${counted(running, 'request')} run and ${count(waiting)} wait at this gateway.</strong></p>`;
  const body = html`<div class="confirm">
    <p>${says}</p>
    ${now}
    <form method="post" action="${enginePath(id, `/${command}`)}">
      ${formToken(visit)}
      <p class="buttons">
        <button class="danger">${title} ${engine.id}</button> <a href="${enginePath(id)}">Leave it</a>
      </p>
    </form>
  </div>`;
  return page(visit, { title: `${title} ${engine.id}?`, body });
}

export async function commandEngine(visit: Visit, id: string, command: EngineCommand): Promise<Response> {
  const done = await visit.send<EngineAnswer>('POST', apiPath(id, `/${command}`));
  if (done.ok) return visit.context.redirect(`${enginePath(id)}?notice=${command}`, 303);
  const body = html`${notice('bad', done.refusal.message)}
    <p class="buttons"><a class="button" href="${enginePath(id)}">To the engine</a></p>`;
  return page(visit, { title: 'Nothing was done', body, status: statusOf(done.refusal) });
}
