import { formatId } from '#base/id.ts';
import type { PageAnswer } from '#edge/contract/lists.ts';
import type { StackAnswer, StackDiffAnswer, StackInputAnswer, StackVersionEntryAnswer } from '#edge/contract/stacks.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  badge,
  count,
  counted,
  type Form,
  html,
  type Html,
  type MaybeHtml,
  pathWith,
  queryOf,
  records,
  type Refusal,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { valueText } from './input-fields.ts';
import { stackPath } from './stack-list.ts';
import { confirmForm, moment, onceHeader, pageNumber, pager } from './widgets.ts';

/** The versions of a stack: their list, what differs between two of them, and the way back to an earlier one. */

const pageSize = 10;
/** Digits of a SHA-256 that the list shows. */
const hashChars = 12;

const ownId = ({ signedIn }: Visit): string => formatId('user', signedIn.session.userId);

/** True if the API lets the visitor apply the stack and download its package. */
export const mayRead = (visit: Visit, { visibility, owner_id: owner }: StackAnswer): boolean =>
  visibility === 'global' || owner === ownId(visit);

/** True if the API lets the visitor upload versions of the stack. */
function mayPush(visit: Visit, stack: StackAnswer): boolean {
  if (stack.builtin || !visit.mayOwn('stacks')) return false;
  return stack.visibility === 'private' ? mayRead(visit, stack) : visit.signedIn.principal.platformRole === 'admin';
}

export const readVersions = (visit: Visit, { id }: StackAnswer): Promise<PageAnswer<StackVersionEntryAnswer>> =>
  visit.get(
    pathWith(`/v1/stacks/${id}/versions`, { page: pageNumber(queryOf(visit.context, 'page')), limit: pageSize }),
  );

export function versionSection(visit: Visit, stack: StackAnswer, list: PageAnswer<StackVersionEntryAnswer>): Html {
  return html`<section aria-labelledby="versions-title">
    <h2 id="versions-title">Versions</h2>
    ${records({
      caption: 'Stack versions',
      columns: ['Version', 'Uploaded', 'Package', 'Actions'],
      rows: list.data.map((one) => [
        html`${one.number} ${one.newest ? badge('good', 'newest') : null}
        ${one.in_use === true ? badge('plain', 'in use') : null}`,
        html`${moment(one.created_at)}${uploader(visit, one)}`,
        html`${counted(one.files, 'file')}, ${count(one.size)} bytes,
          <code title="${one.sha256}">${one.sha256.slice(0, hashChars)}</code>`,
        versionActions(visit, stack, one),
      ]),
    })}
    ${pager(stackPath(stack), {}, list)}
    <p class="hint">
      An upload with the same name becomes the next version. Headgate keeps the last five versions, and all versions
      that runs have applied: removing what a run created needs the version of that run.
    </p>
  </section>`;
}

function uploader(visit: Visit, { created_by: by }: StackVersionEntryAnswer): MaybeHtml {
  if (by === null) return null;
  return html` <span class="quiet wrap" title="${by}">by ${by === ownId(visit) ? 'you' : by}</span>`;
}

function versionActions(visit: Visit, stack: StackAnswer, { number, newest }: StackVersionEntryAnswer): MaybeHtml {
  const to = (page: string): string => `${stackPath(stack)}/${page}`;
  const reads = mayRead(visit, stack);
  const links = [
    reads ? html`<a href="${to('download')}?version=${number}">Download</a>` : null,
    reads && !newest ? html`<a href="${to('diff')}?from=${number}">Compare with newest</a>` : null,
    reads && !newest && visit.may('runs') ? html`<a href="${to('apply')}?version=${number}">Apply</a>` : null,
    !newest && mayPush(visit, stack) ? html`<a href="${to('revert')}?version=${number}">Revert</a>` : null,
  ].filter((link) => link !== null);
  return html`<span class="links">${links.map((link, index) => (index === 0 ? link : html` · ${link}`))}</span>`;
}

export async function diffPage(visit: Visit, name: string): Promise<Response> {
  const stack = await visit.get<StackAnswer>(`/v1/stacks/${encodeURIComponent(name)}`);
  const chosen = { from: queryOf(visit.context, 'from'), to: queryOf(visit.context, 'to') };
  const path = pathWith(`/v1/stacks/${stack.id}/diff`, chosen);
  const diff = await visit.get<StackDiffAnswer>(path);
  const { from, to, files, inputs } = diff;
  const isSame = files.length === 0 && inputs.length === 0;
  const body = html`${isSame ? html`<p class="lead">The versions ${from} and ${to} have the same files and inputs.</p>` : null}
    ${inputs.length === 0 ? null : inputSection(inputs)} ${files.length === 0 ? null : fileSection(files)}
    <p><a href="${stackPath(stack)}">Back to ${stack.title}</a></p>`;
  return page(visit, { title: `${stack.title}: version ${from} to ${to}`, body, returnTo: stackPath(stack) });
}

const kinds = { added: 'good', removed: 'bad', changed: 'busy' } as const;

function inputSection(inputs: StackDiffAnswer['inputs']): Html {
  return html`<section aria-labelledby="inputs-title">
    <h2 id="inputs-title">Inputs</h2>
    ${records({
      caption: 'Changed inputs',
      columns: ['Name', 'Before', 'After'],
      rows: inputs.map(({ name, change, before, after }) => [
        html`<code>${name}</code> ${badge(kinds[change], change)}`,
        inputText(before),
        inputText(after),
      ]),
    })}
  </section>`;
}

function inputText(input: StackInputAnswer | undefined): Html {
  if (input === undefined) return html`<span class="quiet">none</span>`;
  const { type_expression: expression, type, default: value, required, sensitive } = input;
  const otherwise = value === null || value === undefined || sensitive ? null : valueText(value);
  return html`<code>${expression ?? type}</code
    >${required ? ', required' : null}${sensitive ? ', secret' : null}${otherwise === null ? null : html`, default <code class="wrap">${otherwise}</code>`}`;
}

const omissions = { binary: 'Not text.', too_large: 'Too large to show. Download both versions to compare them.' };

function fileSection(files: StackDiffAnswer['files']): Html {
  return html`<section aria-labelledby="files-title">
    <h2 id="files-title">Files</h2>
    ${files.map(
      ({ path, change, diff, omitted }) =>
        html`<details class="fold" ${diff === null ? null : html`open`}>
          <summary><code class="wrap">${path}</code> ${badge(kinds[change], change)}</summary>
          ${omitted === null ? null : html`<p class="hint">${omissions[omitted]}</p>`}
          ${diff === null ? null : html`<pre class="diff" tabindex="0" role="region" aria-label="Diff of ${path}">${diffLines(diff)}</pre>`}
        </details>`,
    )}
  </section>`;
}

const lineClasses: Readonly<Record<string, string>> = { '+': 'added', '-': 'removed', '@': 'quiet' };

/** Renders lines. Each is a block of its own, so that the template needs no line breaks. */
function diffLines(diff: string): Html[] {
  const lines = diff.replace(/\n$/, '').split('\n');
  const headers = lines.findIndex((line) => line.startsWith('@@'));
  return lines.map((line, index) => {
    const kind = index < headers ? 'quiet' : (lineClasses[line.slice(0, 1)] ?? '');
    return html`<span class="${kind}">${line}</span>`;
  });
}

export async function revertPage(visit: Visit, name: string, refusal: Refusal | null = null): Promise<Response> {
  const version = pageNumber(queryOf(visit.context, 'version'));
  const stack = await visit.get<StackAnswer>(`/v1/stacks/${encodeURIComponent(name)}`);
  const [path, newest] = [stackPath(stack), stack.version.number];
  const body = confirmForm(visit, {
    action: `${path}/revert?version=${version}`,
    back: path,
    button: `Revert to version ${version}`,
    refusal,
    body: html`<p>
        <strong>The package of version ${version} becomes version ${newest + 1}</strong>, which new runs use.
        ${mayRead(visit, stack) ? html`<a href="${path}/diff?from=${version}&to=${newest}">See what differs</a>.` : null}
      </p>
      <p>Version ${newest} stays in the list. Existing runs keep their version.</p>`,
  });
  return page(visit, { title: `Revert ${stack.title}`, body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function revertStack(visit: Visit, name: string, form: Form): Promise<Response> {
  const body = { version: Number(pageNumber(queryOf(visit.context, 'version'))) };
  const path = `/v1/stacks/${encodeURIComponent(name)}/revert`;
  const done = await visit.send<StackAnswer & { readonly outcome: string }>('POST', path, body, onceHeader(form, body));
  if (!done.ok) return revertPage(visit, name, done.refusal);
  const notice = done.body.outcome === 'unchanged' ? 'unchanged' : 'reverted';
  return visit.context.redirect(`${stackPath(done.body)}?notice=${notice}`, 303);
}
