import { page, statusOf } from '#edge/portal/frame/frame.ts';
import { type Form, html, type Html, type Refusal, type Visit } from '#edge/portal/ui/ui.ts';
import type { RunAnswer } from './answers.ts';
import { runPath } from './run-list.ts';
import { readClusterOf, readRun, runPage, titleOf } from './run-page.ts';
import { confirmForm, moment, onceHeader } from './widgets.ts';

/** Actions on runs from their pages. */

const pathOf = (id: string): string => `/v1/runs/${encodeURIComponent(id)}`;

export async function cancelRun(visit: Visit, id: string): Promise<Response> {
  const done = await visit.send<RunAnswer>('POST', `${pathOf(id)}/cancel`);
  return done.ok
    ? visit.context.redirect(`${runPath(done.body)}?notice=canceled`, 303)
    : runPage(visit, id, done.refusal);
}

export async function retryRun(visit: Visit, id: string, form: Form): Promise<Response> {
  const done = await visit.send<RunAnswer>('POST', `${pathOf(id)}/retry`, undefined, onceHeader(form));
  return done.ok ? visit.context.redirect(runPath(done.body), 303) : runPage(visit, id, done.refusal);
}

interface Opened {
  readonly url: string;
}

/** Shows the one-time link for a click, because the pages' policy forbids forms to redirect to another host. */
export async function openRun(visit: Visit, id: string): Promise<Response> {
  const opened = await visit.send<Opened>('POST', `${pathOf(id)}/open`);
  if (!opened.ok) return runPage(visit, id, opened.refusal);
  const run = await readRun(visit, id);
  const { url } = opened.body;
  const body = html`<p class="lead">
      This link works once, in the browser that opens it first, and keeps it in by a cookie for that address alone.
    </p>
    <p class="buttons">
      <a class="button primary" href="${url}" target="_blank" rel="noopener noreferrer">Open ${new URL(url).host}</a>
      <a href="${runPath(run)}">Back to the run</a>
    </p>`;
  return page(visit, { title: `Open ${run.stack}`, body, returnTo: runPath(run) });
}

export async function destroyPage(visit: Visit, id: string, refusal: Refusal | null = null): Promise<Response> {
  const run = await readRun(visit, id);
  const cluster = await readClusterOf(visit, run);
  const where = `${run.node === null ? 'all nodes' : `the node ${run.node}`} of ${cluster?.name ?? run.cluster_id}`;
  const body = confirmForm(visit, {
    action: `${runPath(run)}/destroy`,
    back: runPath(run),
    button: `Destroy ${run.stack}`,
    refusal,
    body: html`<p>
        <strong>Everything that ${run.stack} has made on ${where} is removed</strong>, with the data that it keeps there
        where the stack removes them: programs, services and files, by the version of the stack that made them
        (${moment(run.created_at)}).
      </p>
      ${run.url === null ? null : html`<p>Its web address <code>${run.url}</code> stops at once, and whoever uses it is cut off.</p>`}
      <p>The removal is a run of its own, with a log. There is no way back but to apply the stack again.</p>`,
  });
  return page(visit, { title: `Destroy ${run.stack}`, body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function destroyRun(visit: Visit, id: string, form: Form): Promise<Response> {
  const done = await visit.send<RunAnswer>('POST', `${pathOf(id)}/destroy`, undefined, onceHeader(form));
  return done.ok ? visit.context.redirect(runPath(done.body), 303) : destroyPage(visit, id, done.refusal);
}

const forgetsOwn = html`<p>
  <strong>What this run alone has left is dropped, and nothing of it is removed from the nodes.</strong> What later runs
  have made stays on record and can be destroyed as before.
</p>`;

const forgetsAll = ({ stack }: RunAnswer): Html =>
  html`<p>
      <strong>What Terraform knows of what ${stack} has made is dropped, and nothing of it is removed.</strong>
      Programs, services and files stay on the nodes, and nothing here can destroy them any more.
    </p>
    <p>This is for nodes that are gone for good. Where they can be reached, destroy it.</p>`;

export async function forgetPage(visit: Visit, id: string, refusal: Refusal | null = null): Promise<Response> {
  const run = await readRun(visit, id);
  const body = confirmForm(visit, {
    action: `${runPath(run)}/forget`,
    back: runPath(run),
    button: run.overtaken ? 'Forget what this run has left' : `Forget what ${run.stack} has made`,
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
