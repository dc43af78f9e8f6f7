import type { AuditEntryAnswer } from '#edge/contract/audit.ts';
import type { EngineAnswer, EngineListAnswer } from '#edge/contract/engines.ts';
import type { HostAnswer, HostListAnswer } from '#edge/contract/hosts.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  badge,
  count,
  empty,
  figures,
  type Form,
  formToken,
  html,
  type Html,
  type MaybeHtml,
  notice,
  type Refusal,
  section,
  table,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { duration, engineBadge, enginePath, expectedStartMs, failureText, memory, needs } from './engine-words.ts';
import { leftOutEngines, readReloads, refusedFiles, reloadList } from './engine-changes.ts';

/**
 * Lists engine problems that an operator has to fix, with a retry button. Returns null for visitors who may not manage
 * engines.
 */
export async function engineTroubles(visit: Visit): Promise<MaybeHtml> {
  if (!visit.may('engines')) return null;
  const asked = await visit.send<EngineListAnswer>('GET', '/v1/admin/engines');
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

/** The list of engines, for operators. */

interface Seen {
  readonly engines: readonly EngineAnswer[];
  readonly files: EngineListAnswer['files'];
  readonly hosts: readonly HostAnswer[];
  readonly reloads: readonly AuditEntryAnswer[];
}

async function read(visit: Visit): Promise<Seen> {
  const { get } = visit;
  const [engines, hosts, reloads] = await Promise.all([
    get<EngineListAnswer>('/v1/admin/engines'),
    get<HostListAnswer>('/v1/admin/hosts'),
    readReloads(visit),
  ]);
  return { engines: engines.data, files: engines.files, hosts: hosts.data, reloads };
}

export function enginesPage(visit: Visit): Promise<Response> {
  return enginesPageOf(visit, null);
}

async function enginesPageOf(visit: Visit, refusal: Refusal | null): Promise<Response> {
  const { engines, files, hosts, reloads } = await read(visit);
  const said = visit.takeNotice() === 'reloaded';
  const body = html`${said ? notice('good', 'Engine files reloaded. Changes are listed below.') : null}
    ${refusal === null || files.refused !== null ? null : notice('bad', html`<p class="lines">${refusal.message}</p>`)}
    ${refusedFiles(files)} ${leftOutEngines(files)}
    <div
      id="live"
      hx-get="/portal/engines"
      hx-select="#live"
      hx-trigger="every 5s"
      hx-swap="outerHTML"
      hx-headers='{"X-Poll":"1"}'
    >
      ${totals(engines, hosts)} ${section('engines', 'Engines', engines.length === 0 ? none() : engineTable(engines))}
      ${section('hosts', 'Hosts', hosts.length === 0 ? empty('No hosts', 'External engines need no hosts.') : hostTable(hosts))}
    </div>
    ${section('changes', 'Reloads', reloadList(reloads, files))}`;
  const actions = html`<a class="button" href="/portal/engine-file">New engine file</a>
    <form method="post" action="/portal/engines-reload">${formToken(visit)}<button>Reload engine files</button></form>`;
  return page(visit, { title: 'Engines', actions, body, status: refusal === null ? 200 : statusOf(refusal) });
}

function none(): Html {
  return empty(
    'No engines yet',
    html`Add an engine file to the engines folder, for example from <code>engines/examples</code> or with the form
      <a href="/portal/engine-file">New engine file</a>. Then reload engine files.`,
  );
}

function totals(engines: readonly EngineAnswer[], hosts: readonly HostAnswer[]): Html {
  const gpus = hosts.flatMap((host) => host.gpus);
  const busy = gpus.filter(({ used_by }) => used_by !== null);
  const known = gpus.every(({ memory_bytes }) => memory_bytes !== null);
  const bytes = gpus.reduce((sum, { memory_bytes }) => sum + (memory_bytes ?? 0), 0);
  const sum = (of: (engine: EngineAnswer) => number): string => count(engines.reduce((all, one) => all + of(one), 0));
  const failed = engines.filter(({ state }) => state === 'failed').length;
  return figures([
    {
      label: 'Ready',
      value: count(engines.filter(({ state }) => state === 'ready').length),
      note: `of ${count(engines.length)} engines`,
    },
    {
      label: 'Failed',
      value: failed === 0 ? '0' : badge('bad', count(failed)),
      note: failed === 0 ? 'no failures' : 'see Issue below',
    },
    {
      label: 'Requests',
      value: sum(({ queue }) => queue.running),
      note: `running on this gateway; ${sum(({ queue }) => queue.waiting)} waiting`,
    },
    {
      label: 'GPUs in use',
      value: `${count(busy.length)} of ${count(gpus.length)}`,
      note: gpus.length === 0 ? 'no host has GPUs' : `${known ? '' : 'at least '}${memory(bytes)} in total`,
    },
  ]);
}

/** Summarizes an engine in one line; problems come first. */
function remark({ last_failure: failure, rollout, replicas, warnings }: EngineAnswer): MaybeHtml {
  if (failure !== null) return html`<span class="wrap">${failureText(failure)}</span>`;
  if (rollout !== null) return html`<span class="wrap">${rollout.message}</span>`;
  const busy = replicas.find(({ progress }) => progress !== null);
  const text = busy === undefined ? warnings.join(' ') : busy.progress;
  return text === '' ? html`<span class="quiet">–</span>` : html`<span class="wrap">${text}</span>`;
}

function engineTable(engines: readonly EngineAnswer[]): Html {
  return table({
    caption: 'Engines and their state',
    columns: [
      { title: 'Engine' },
      { title: 'State' },
      { title: 'Replicas', isNumber: true },
      { title: 'Running', isNumber: true },
      { title: 'Waiting', isNumber: true },
      { title: 'Resources per replica' },
      { title: 'Start time' },
      { title: 'Issue' },
    ],
    rows: engines.map((engine) => {
      const start = expectedStartMs(engine);
      return [
        html`<a href="${enginePath(engine.id)}">${engine.id}</a><br /><span class="quiet">${engine.driver}</span>`,
        engineBadge(engine),
        `${engine.replicas.length} of ${engine.replicas_max}`,
        count(engine.queue.running),
        count(engine.queue.waiting),
        needs(engine),
        start === null ? html`<span class="quiet">not measured yet</span>` : `about ${duration(start)}`,
        remark(engine),
      ];
    }),
  });
}

function gpuList({ gpus }: HostAnswer): MaybeHtml {
  if (gpus.length === 0) return html`<span class="quiet">none</span>`;
  return html`<ul class="gpus">
    ${gpus.map(({ id, memory_bytes, profile, used_by: user }) => {
      const by = user === null ? badge('good', 'free') : (user.engine ?? user.stranger ?? 'in use');
      const engine = user?.engine ?? null;
      return html`<li>
        <code>${id}</code> ${profile} ${memory(memory_bytes)}:
        ${engine === null || user?.stranger !== null ? by : html`<a href="${enginePath(engine)}">${engine}</a>`}
      </li>`;
    })}
  </ul>`;
}

function hostTable(hosts: readonly HostAnswer[]): Html {
  return table({
    caption: 'Hosts and their GPUs',
    columns: [
      { title: 'Host' },
      { title: 'State' },
      { title: 'GPUs' },
      { title: 'Replicas', isNumber: true },
      { title: 'Orphaned replicas' },
    ],
    rows: hosts.map((host) => [
      host.name,
      html`${host.reachable ? badge('good', 'reachable') : badge('bad', 'unreachable')}${host.trouble === null ? null : html`<br /><span class="wrap quiet">${host.trouble}</span>`}`,
      gpuList(host),
      count(host.replicas.length),
      host.strangers.length === 0
        ? html`<span class="quiet">none</span>`
        : html`<ul class="gpus">
            ${host.strangers.map(({ name, ended_by }) => html`<li>${name}: <code class="wrap">${ended_by}</code></li>`)}
          </ul>`,
    ]),
  });
}

/** @param form may name the engine from whose page the request comes */
export async function reloadEngines(visit: Visit, form: Form): Promise<Response> {
  const done = await visit.send<unknown>('POST', '/v1/admin/engines/reload');
  if (!done.ok) return enginesPageOf(visit, done.refusal);
  const id = form.text('engine');
  const isOfAll = id === '' || (await visit.find(`/v1/admin/engines/${encodeURIComponent(id)}`)) === null;
  return visit.context.redirect(`${isOfAll ? '/portal/engines' : enginePath(id)}?notice=reloaded`, 303);
}
