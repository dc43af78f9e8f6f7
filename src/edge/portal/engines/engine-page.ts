import type { AuditEntryAnswer } from '#edge/contract/audit.ts';
import type { EngineAnswer, RunningRequestAnswer } from '#edge/contract/engines.ts';
import type { ListAnswer } from '#edge/contract/lists.ts';
import type { MarginsAnswer, ModelMarginAnswer } from '#edge/contract/margins.ts';
import { actorNames, assets, page } from '#edge/portal/frame/frame.ts';
import { sentenceOf } from '#edge/portal/people/people.ts';
import {
  asksByItself,
  badge,
  count,
  counted,
  empty,
  facts,
  figures,
  formToken,
  html,
  type Html,
  type MaybeHtml,
  notice,
  noticeOf,
  pathWith,
  type PortalParts,
  section,
  table,
  timeOf,
  timeToSecond,
  usd,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { isAbout, readReloads } from './engine-changes.ts';
import type { EngineCommand } from './engine-commands.ts';
import { logOf } from './engine-log.ts';
import {
  duration,
  engineApiPath,
  engineBadge,
  enginePath,
  expectedStartMs,
  needs,
  stateWords,
} from './engine-words.ts';
import { loadFigures, loadSection } from './engine-charts.ts';
import { lastStart } from './last-start.ts';
import { readRunning, runningTable } from './running-requests.ts';

const dayMs = 86_400_000;
const changesShown = 10;

const notices: Readonly<Record<string, string>> = {
  start: 'Start requested.',
  stop: 'Stop requested. The engine finishes its running requests and stays stopped until somebody starts it.',
  restart: 'Restart requested. Each replica is replaced once its successor is ready.',
  reloaded: 'Engine files reloaded. Changes of this engine are listed below.',
  reset: 'Failures cleared. The next request starts the engine.',
  canceled: 'Request canceled.',
};

interface Seen {
  readonly engine: EngineAnswer;
  readonly margin: ModelMarginAnswer | null;
  readonly changes: readonly AuditEntryAnswer[];
  readonly names: ReadonlyMap<string, string>;
  readonly log: Html;
}

/**
 * Reads the margin of whole UTC days, today included: their sums are kept, where a part of an hour is summed from
 * requests. Returns null if the report is unavailable, so that the rest of the page is shown without it.
 */
async function readMargin(visit: Visit, { clock }: PortalParts, id: string): Promise<ModelMarginAnswer | null> {
  const tomorrowMs = (Math.floor(clock.now() / dayMs) + 1) * dayMs;
  const [from, to] = [tomorrowMs - 30 * dayMs, tomorrowMs].map((ms) => new Date(ms).toISOString());
  const asked = await visit.send<MarginsAnswer>('GET', pathWith('/v1/billing/margins', { from, to, busy: 'false' }));
  return asked.ok ? (asked.body.models.find(({ model }) => model === id) ?? null) : null;
}

async function read(visit: Visit, parts: PortalParts, id: string): Promise<Omit<Seen, 'engine'>> {
  // The audit log keeps orders in the organization of the user who gave them.
  const { ownOrganizationId: organization_id } = visit;
  const [margin, orders, reloads, names, log] = await Promise.all([
    readMargin(visit, parts, id),
    visit.get<ListAnswer<AuditEntryAnswer>>(
      pathWith('/v1/audit', { target_id: id, limit: changesShown, organization_id }),
    ),
    readReloads(visit),
    actorNames(visit, organization_id),
    logOf(visit, id),
  ]);
  const changes = [...orders.data, ...reloads.filter((one) => isAbout(one, id))]
    .toSorted((a, b) => b.created_at - a.created_at)
    .slice(0, changesShown);
  return { margin, changes, names, log };
}

export async function enginePage(visit: Visit, parts: PortalParts, id: string): Promise<Response> {
  const [engine, running] = await Promise.all([visit.get<EngineAnswer>(engineApiPath(id)), readRunning(visit, id)]);
  const live = livePart(visit, parts, engine, running);
  // Only the live part polls, and it needs none of the reports below it.
  if (asksByItself(visit.context)) return visit.context.html(live);
  const seen = { engine, ...(await read(visit, parts, id)) };
  const body = html`${live} ${await loadSection(visit, parts, engine)} ${section('log', 'Log', seen.log)}
  ${section('money', 'Margin', marginOf(seen))} ${section('file', 'File and changes', fileOf(seen))}`;
  return page(visit, { title: engine.id, body, script: [assets.log, assets.chart] });
}

/** The notice, the state and the buttons are replaced together, so that they never contradict each other. */
function livePart(
  visit: Visit,
  parts: PortalParts,
  engine: EngineAnswer,
  running: readonly RunningRequestAnswer[],
): Html {
  const said = noticeOf(visit, notices);
  return html`<div
    id="live"
    hx-get="${enginePath(engine.id)}"
    hx-select="#live"
    hx-trigger="every 3s"
    hx-swap="outerMorph"
    hx-headers='{"X-Poll":"1"}'
  >
    ${said === undefined ? null : notice('good', said)}
    <p class="lead">${engineBadge(engine)} ${stateWords(engine)}</p>
    <div class="actions">${buttons(visit, engine)}</div>
    ${failure(visit, engine)} ${rollout(visit, engine)} ${warnings(engine)} ${numbers(parts, engine)}
    ${loadFigures(engine, parts.clock.now())}
    ${section('replicas', 'Replicas', replicaTable(engine, parts.clock.now()))}
    ${section('requests', 'Running requests', runningTable(visit, engine.id, running, parts.clock.now()))}
    ${lastStart(engine, parts.clock.now())} ${scheduleOf(engine)}
  </div>`;
}

function order(visit: Visit, engine: EngineAnswer, command: EngineCommand, text: string): Html {
  return html`<form method="post" action="${enginePath(engine.id, `/${command}`)}">
    ${formToken(visit)}<button class="primary">${text}</button>
  </form>`;
}

const isDown = ({ state }: EngineAnswer): boolean => ['stopped', 'retrying', 'failed', 'held'].includes(state);

function buttons(visit: Visit, engine: EngineAnswer): MaybeHtml {
  if (engine.state === 'disabled') return null;
  const model = html`<a class="button" href="/portal/models/${encodeURIComponent(engine.id)}">View model</a>`;
  if (engine.state === 'off') return model;
  // For a failed engine, `start` forgets the failures and tries again.
  if (isDown(engine))
    return html`${order(visit, engine, 'start', engine.state === 'failed' || engine.state === 'retrying' ? 'Retry' : 'Start')}
    ${model}`;
  return html`${engine.driver === 'external' ? null : html`<a class="button" href="${enginePath(engine.id, '/restart')}">Restart</a>`}
    <a class="button danger" href="${enginePath(engine.id, '/stop')}">Stop</a> ${model}`;
}

function failure(visit: Visit, engine: EngineAnswer): MaybeHtml {
  const { last_failure: last } = engine;
  if (last === null) return null;
  const again =
    last.retry_at === null
      ? 'There is no automatic retry.'
      : html`Next automatic retry: ${timeToSecond(last.retry_at * 1000)}.`;
  return notice(
    'bad',
    html`<p><strong>${last.message}</strong></p>
      ${last.detail === null ? null : html`<pre class="detail" tabindex="0">${last.detail}</pre>`}
      <p>
        ${again} Fix the problem, reload engine files if you changed one, and retry. Or clear the failure, and the next
        request starts the engine.
      </p>
      <div class="actions">
        ${reloadForm(visit, engine.id)}
        <form method="post" action="${enginePath(engine.id, '/reset')}">
          ${formToken(visit)}<button>Clear failure</button>
        </form>
      </div>`,
  );
}

/** Button that reloads the files of all engines. The outcome is shown on the page that has the button. */
function reloadForm(visit: Visit, id: string): Html {
  return html`<form method="post" action="/portal/engines-reload">
    ${formToken(visit)}<input type="hidden" name="engine" value="${id}" /><button>Reload engine files</button>
  </form>`;
}

function rollout(visit: Visit, { rollout: change, file, id }: EngineAnswer): MaybeHtml {
  if (change === null) return null;
  if (change.state === 'checking') {
    return notice(
      'plain',
      html`<p><strong>Checking a new version of ${file}.</strong> ${change.message}</p>
        <p>It replaces the old version once its replica has answered. Until then the old version serves requests.</p>`,
    );
  }
  return notice(
    'bad',
    html`<p><strong>The new version of ${file} was rejected. The old version stays in use.</strong></p>
      <p class="lines">${change.message}</p>
      <p>Fix the file, then reload engine files.</p>
      ${reloadForm(visit, id)}`,
  );
}

const warnings = ({ warnings: texts }: EngineAnswer): MaybeHtml =>
  texts.map((text) => notice('bad', html`<p>${text}</p>`));

function numbers({ prices }: PortalParts, engine: EngineAnswer): Html {
  const price = prices().find(({ model }) => model === engine.id);
  const start = expectedStartMs(engine);
  const amounts =
    price === undefined
      ? html`<span class="quiet">none</span>`
      : `${usd(price.input_per_million)} / ${usd(price.output_per_million)}`;
  return figures([
    {
      label: 'Running',
      value: count(engine.queue.running),
      note: `${count(engine.queue.waiting)} waiting, on this gateway`,
    },
    {
      label: 'Replicas',
      value: count(engine.replicas.length),
      note: `${engine.replicas_min} to ${engine.replicas_max}${engine.pinned ? ', pinned' : ''}`,
    },
    { label: 'Resources per replica', value: needs(engine), note: engine.driver },
    {
      label: 'Start time',
      value: start === null ? 'not measured yet' : `about ${duration(start)}`,
      note:
        start === null
          ? 'no successful start yet'
          : `median of the last ${counted(engine.start_times_ms.length, 'start')}`,
    },
    { label: 'Price', value: amounts, note: 'input / output, per million tokens' },
  ]);
}

/** Describes when the next replica starts, for states in which the next request does not start it. */
const nextReplica: Readonly<Partial<Record<EngineAnswer['state'], string>>> = {
  starting: 'A start is in progress.',
  failed: 'Fix the failure above and retry.',
  retrying: 'The next one starts with the automatic retry, or use the button above.',
  held: 'Start the engine with the button above.',
  off: 'The schedule below says when replicas run again.',
  disabled: 'The engine file disables this engine.',
};

type Deployment = NonNullable<EngineAnswer['replicas'][number]['deployment']>;

function replicaTable({ replicas, state }: EngineAnswer, nowMs: number): Html {
  if (replicas.length === 0)
    return empty('No replicas running', nextReplica[state] ?? 'The next request starts one, or use the button above.');
  return table({
    caption: 'Replicas and their hosts',
    columns: [
      { title: 'Replica' },
      { title: 'State' },
      { title: 'vLLM' },
      { title: 'Time in state' },
      { title: 'Host' },
      { title: 'GPUs' },
      { title: 'Running', isNumber: true },
      { title: 'Probes' },
    ],
    rows: replicas.map(({ id, state, since, host, gpus, progress, running, healthy, version, deployment }) => [
      html`<code>${id}</code
        >${deployment === null ? null : html`<br /><span class="wrap quiet">${deploymentText(deployment)}</span>`}`,
      html`${badge(state === 'ready' ? 'good' : 'busy', state)}${progress === null ? null : html`<br /><span class="wrap quiet">${progress}</span>`}`,
      versionOf(version),
      duration(nowMs - since * 1000),
      host,
      gpus.length === 0 ? html`<span class="quiet">none</span>` : gpus.join(', '),
      count(running),
      healthy === null ? html`<span class="quiet">none yet</span>` : healthy ? 'healthy' : badge('bad', 'unhealthy'),
    ]),
  });
}

function deploymentText({ name, upstream_model, weight }: Deployment): string {
  return `${name}: ${upstream_model}, weight ${weight}`;
}

function scheduleOf({ schedule }: EngineAnswer): MaybeHtml {
  if (schedule === null) return null;
  const { entry, since, next, next_at: nextAt } = schedule;
  const current =
    entry === null ? 'replicas of the engine file' : html`${entryOf(entry)}, since ${timeOf(since, 'unknown')}`;
  const change = next === null ? 'none' : html`${entryOf(next)}, at ${timeOf(nextAt, 'unknown')}`;
  return section(
    'schedule',
    'Schedule',
    facts([
      ['In effect', current],
      ['Next change', change],
    ]),
  );
}

type ScheduleEntry = NonNullable<NonNullable<EngineAnswer['schedule']>['entry']>;

const entryOf = ({ cron, timezone, min_replicas: min, max_replicas: max }: ScheduleEntry): Html =>
  html`<code>${cron}</code> ${timezone}: ${max === 0 ? 'off' : `${min} to ${max} replicas`}`;

function versionOf(version: EngineAnswer['replicas'][number]['version']): MaybeHtml {
  if (version === null) return html`<span class="quiet">–</span>`;
  if (version.name === null) return html`<span class="quiet">unknown</span>`;
  return version.tried ? version.name : html`${version.name} ${badge('plain', 'untried')}`;
}

function marginOf({ margin }: Seen): Html {
  if (margin === null) {
    return empty(
      'No margin data for the last 30 days',
      'This section compares the revenue from requests with the GPU cost of the replicas.',
    );
  }
  const { revenue, cost, complete, margin: left, margin_ratio: ratio, gpu_hours: hours, requests } = margin;
  const share = ratio === null ? null : `${Math.round(ratio * 100)} % of revenue`;
  return html`${figures([
      { label: 'Revenue', value: usd(revenue), note: `${counted(requests, 'request')}, including failed` },
      {
        label: 'GPU cost',
        value: usd(cost),
        note: complete ? `${hours.held.toFixed(2)} GPU-hours` : 'at least: some GPU-hours have no rate',
      },
      { label: 'Margin', value: left === null ? 'unknown' : usd(left), note: share ?? 'last 30 days' },
    ])}
    <p class="quiet">
      Last 30 days in UTC, with today. The GPU cost is based on the rate cards.
      <a href="/portal/costs/margins">Margins</a> show the busy hours.
    </p>`;
}

/** A run may declare an engine, and its name takes the place of a file. */
function editLink({ id, file }: EngineAnswer): MaybeHtml {
  return file.endsWith('.yaml') ? html`<a href="${pathWith('/portal/engine-file', { engine: id })}">Edit</a>` : null;
}

function fileOf({ engine, changes, names }: Seen): Html {
  const known = facts([
    ['File', html`<code>${engine.file}</code> ${editLink(engine)}`],
    ['Name', engine.name],
  ]);
  if (changes.length === 0)
    return html`${known} ${empty('No changes yet', 'Starts, stops and file changes of this engine appear here.')}`;
  return html`${known}
    ${table({
      caption: 'File changes and commands, newest first',
      columns: [{ title: 'Time' }, { title: 'Change', isWide: true }],
      rows: changes.map((change) => [
        timeOf(change.created_at, ''),
        html`<span class="wrap">${sentenceOf(change, names)}</span>`,
      ]),
    })}
    <p class="hint">
      The check of a new file version is shown at the top of this page while it runs, and if the version is rejected.
      This status is removed once the version serves requests, or after the next reload.
    </p>`;
}
