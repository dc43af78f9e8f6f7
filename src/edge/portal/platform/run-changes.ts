import type { OpenedRunAnswer, RunAnswer } from '#edge/contract/runs.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  type Form,
  formToken,
  html,
  type Html,
  queryOf,
  type Refusal,
  refused,
  select,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { runPath } from './run-list.ts';
import { lifeOf, lives } from './run-words.ts';
import { readClusterOf, readRun, runPage, titleOf } from './run-page.ts';
import { actionButton, confirmForm, moment, onceHeader } from './widgets.ts';

/** Actions on runs from their pages. */

const pathOf = (id: string): string => `/v1/runs/${encodeURIComponent(id)}`;

export async function cancelRun(visit: Visit, id: string): Promise<Response> {
  const done = await visit.send<RunAnswer>('POST', `${pathOf(id)}/cancel`);
  return done.ok
    ? visit.context.redirect(`${runPath(done.body)}?notice=canceled`, 303)
    : runPage(visit, id, done.refusal);
}

/** Confirms or discards the plan of a run. */
export async function decideRun(visit: Visit, id: string, decision: 'confirm' | 'discard'): Promise<Response> {
  const done = await visit.send<RunAnswer>('POST', `${pathOf(id)}/${decision}`);
  return done.ok
    ? visit.context.redirect(`${runPath(done.body)}?notice=${decision === 'confirm' ? 'confirmed' : 'discarded'}`, 303)
    : runPage(visit, id, done.refusal);
}

export async function retryRun(visit: Visit, id: string, form: Form): Promise<Response> {
  const done = await visit.send<RunAnswer>('POST', `${pathOf(id)}/retry`, undefined, onceHeader(form));
  return done.ok ? visit.context.redirect(runPath(done.body), 303) : runPage(visit, id, done.refusal);
}

/** Requests a check, or changes whether Headgate checks by itself, by the parameter `regular`. */
export async function checkDrift(visit: Visit, id: string, form: Form): Promise<Response> {
  const path = pathOf(id);
  const regular = queryOf(visit.context, 'regular');
  const done =
    regular === ''
      ? await visit.send<RunAnswer>('POST', `${path}/drift-check`, undefined, onceHeader(form))
      : await visit.send<RunAnswer>('PATCH', path, { check_drift: regular === 'on' });
  if (!done.ok) return runPage(visit, id, done.refusal);
  const notice = regular === '' ? 'drift_check' : 'drift_checks';
  return visit.context.redirect(`${runPath({ id: done.body.drift_check_of ?? done.body.id })}?notice=${notice}`, 303);
}

export async function expiryPage(visit: Visit, id: string, refusal: Refusal | null = null): Promise<Response> {
  const run = await readRun(visit, id);
  const now = run.expires_at === null ? 'never expires' : html`expires at ${moment(run.expires_at)}`;
  const body = html`<form class="form" method="post" action="${runPath(run)}/expiry">
    ${formToken(visit)} ${refused(refusal)}
    <p>${run.stack} ${now}. Headgate sends a notice before the expiry, then destroys the resources.</p>
    ${select('life', 'Expires, from now', [{ value: '', label: 'Choose a time' }, ...lives], '')}
    <p class="buttons"><button class="primary">Change expiry</button> <a href="${runPath(run)}">Cancel</a></p>
  </form>`;
  const status = refusal === null ? 200 : statusOf(refusal);
  return page(visit, { title: `Expiry of ${run.stack}`, body, status, returnTo: runPath(run) });
}

const noLife: Refusal = { status: 400, message: 'Choose when the run expires.', problems: new Map() };

/** @param nowMs milliseconds since the Unix epoch, from which the chosen life counts */
export async function changeExpiry(visit: Visit, id: string, nowMs: number, form: Form): Promise<Response> {
  const life = lifeOf(form.text('life'));
  if (life === undefined) return expiryPage(visit, id, noLife);
  const body = { expires_at: life === null ? null : new Date(nowMs + life * 1000).toISOString() };
  const done = await visit.send<RunAnswer>('PATCH', pathOf(id), body);
  if (!done.ok) return expiryPage(visit, id, done.refusal);
  return visit.context.redirect(`${runPath(done.body)}?notice=expiry`, 303);
}

/** Shows the one-time link for a click, because the pages' policy forbids forms to redirect to another host. */
export async function openRun(visit: Visit, id: string): Promise<Response> {
  const opened = await visit.send<OpenedRunAnswer>('POST', `${pathOf(id)}/open`);
  if (!opened.ok) return runPage(visit, id, opened.refusal);
  const run = await readRun(visit, id);
  const { url } = opened.body;
  const body = html`<p class="lead">
      This link works once, in the first browser that opens it. It sets a cookie for this address only.
    </p>
    <p class="buttons">
      <a class="button primary" href="${url}" target="_blank" rel="noopener noreferrer">Open ${new URL(url).host}</a>
      <a href="${runPath(run)}">Back to run</a>
    </p>`;
  return page(visit, { title: `Open ${run.stack}`, body, returnTo: runPath(run) });
}

export async function destroyPage(visit: Visit, id: string, refusal: Refusal | null = null): Promise<Response> {
  const run = await readRun(visit, id);
  const cluster = await readClusterOf(visit, run);
  const where = `${run.node === null ? 'all nodes' : `node ${run.node}`} of ${cluster?.name ?? run.cluster_id}`;
  const body = confirmForm(visit, {
    action: `${runPath(run)}/destroy`,
    back: runPath(run),
    button: `Destroy ${run.stack}`,
    refusal,
    body: html`<p>
        <strong>All resources that ${run.stack} created on ${where} are removed</strong>: programs, services and files,
        including their data if the stack removes it. The removal uses the stack version of the run from
        ${moment(run.created_at)}.
      </p>
      ${run.url === null ? null : html`<p>Its web address <code>${run.url}</code> stops immediately, and open connections are closed.</p>`}
      <p>The removal is a separate run with its own log. To restore the stack, you must apply it again.</p>
      <p>To see first which resources are removed, let the run wait for confirmation after its plan.</p>
      <div class="actions">${actionButton(visit, `${runPath(run)}/destroy?mode=confirm`, 'Plan first')}</div>`,
  });
  return page(visit, { title: `Destroy ${run.stack}`, body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function destroyRun(visit: Visit, id: string, form: Form): Promise<Response> {
  const body = queryOf(visit.context, 'mode') === 'confirm' ? { auto_apply: false } : {};
  const done = await visit.send<RunAnswer>('POST', `${pathOf(id)}/destroy`, body, onceHeader(form, body));
  return done.ok ? visit.context.redirect(runPath(done.body), 303) : destroyPage(visit, id, done.refusal);
}

const forgetsOwn = html`<p>
  <strong>Only the record of what this run left is deleted. Nothing is removed from the nodes.</strong> Resources of
  later runs stay on record and can still be destroyed.
</p>`;

const forgetsAll = ({ stack }: RunAnswer): Html =>
  html`<p>
      <strong>The record of all resources that ${stack} created is deleted. The resources are not removed.</strong>
      Programs, services and files stay on the nodes, and Headgate can no longer destroy them.
    </p>
    <p>Use this only if the nodes are permanently lost. If they are reachable, destroy the stack instead.</p>`;

export async function forgetPage(visit: Visit, id: string, refusal: Refusal | null = null): Promise<Response> {
  const run = await readRun(visit, id);
  const body = confirmForm(visit, {
    action: `${runPath(run)}/forget`,
    back: runPath(run),
    button: run.overtaken ? 'Forget resources of this run' : `Forget resources of ${run.stack}`,
    refusal,
    body: run.overtaken ? forgetsOwn : forgetsAll(run),
  });
  return page(visit, { title: `Forget ${titleOf(run)}`, body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function forgetRun(visit: Visit, id: string): Promise<Response> {
  const done = await visit.send<RunAnswer>('POST', `${pathOf(id)}/forget`);
  if (!done.ok) return forgetPage(visit, id, done.refusal);
  return visit.context.redirect(`${runPath(done.body)}?notice=forgotten`, 303);
}
