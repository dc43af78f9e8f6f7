import type { PageAnswer } from '#edge/contract/lists.ts';
import type { RunAnswer } from '#edge/contract/runs.ts';
import type { StackAnswer } from '#edge/contract/stacks.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  area,
  beganWith,
  changesIn,
  field,
  type Form,
  formToken,
  html,
  type Html,
  isEmpty,
  type MaybeHtml,
  notice,
  problemOf,
  type Refusal,
  refused,
  type UploadForm,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { stackPath } from './stack-list.ts';
import { readStack } from './stack-page.ts';
import { chooser, confirmForm } from './widgets.ts';

/** Uploads, changes and deletes stacks. */

const path = '/portal/stacks';

interface CatalogEntry {
  readonly title: string;
  readonly description: string;
  readonly category: string;
  readonly icon: string;
}

const iconHint =
  'One emoji, or the https URL of a PNG, JPEG, GIF or WebP image. The gateway fetches the image once and serves it.';

function catalogFields({ title, description, category, icon }: CatalogEntry, refusal: Refusal | null): Html {
  return html`${field({ name: 'title', label: 'Title', value: title, refusal, maxLength: 200 })}
    ${area({ name: 'description', label: 'Description', value: description, refusal, hint: 'Plain text.' })}
    <div class="grid">
      ${field({ name: 'category', label: 'Category', value: category, refusal, maxLength: 100, hint: 'For example Scheduler, Orchestration, ML Framework or Monitoring.' })}
      ${field({ name: 'icon', label: 'Icon', value: icon, refusal, maxLength: 50_000, hint: iconHint })}
    </div>`;
}

const catalogEntryIn = (form: Form): CatalogEntry => ({
  title: form.text('title').trim(),
  description: form.text('description').replaceAll('\r\n', '\n').trim(),
  category: form.text('category').trim(),
  icon: form.text('icon').trim(),
});

interface Upload extends CatalogEntry {
  readonly name: string;
  readonly url: string;
}

const nothingTyped: Upload = { name: '', url: '', title: '', description: '', category: '', icon: '' };

/** Lists the problems that the API found in a package, each with its file or field. */
function packageProblems(refusal: Refusal | null): MaybeHtml {
  if (refusal === null || refusal.problems.size < 2) return refused(refusal);
  return notice(
    'bad',
    html`<p>${refusal.message}</p>
      <ul class="plain-list">
        ${[...refusal.problems].map(([name, text]) => html`<li><code>${name}</code> ${text}</li>`)}
      </ul>`,
  );
}

export function newStackPage(visit: Visit, typed: Upload = nothingTyped, refusal: Refusal | null = null) {
  const isAdmin = visit.signedIn.principal.platformRole === 'admin';
  const problem = problemOf(refusal, 'file', 'The file');
  const body = html`<p class="lead">
      A zip file of at most 10 MiB with a Terraform module and an optional manifest (manifest.yaml). The gateway checks
      the whole package before storing it.
      ${isAdmin ? 'As a platform administrator, you upload it for all organizations.' : 'Only you and platform administrators see your uploads.'}
    </p>
    ${packageProblems(refusal)}
    <form class="form" method="post" action="${path}" enctype="multipart/form-data">
      ${formToken(visit)}
      <div class="field">
        <label for="file">Zip file</label>
        <input
          type="file"
          id="file"
          name="file"
          accept=".zip,application/zip"
          aria-describedby="file-hint"
          ${problem === null ? null : html`aria-invalid="true"`}
        />
        <p class="hint" id="file-hint">Or leave this empty and enter a URL below.</p>
        ${problem === null ? null : html`<p class="problem">${problem}</p>`}
      </div>
      ${field({ name: 'url', label: 'Zip URL', value: typed.url, placeholder: 'https://', refusal, maxLength: 2048, hint: 'An https URL with a public address. The gateway downloads it once, when you submit this form.' })}
      ${field({ name: 'name', label: 'Name', value: typed.name, refusal, maxLength: 100, hint: 'If empty, taken from the manifest, the folder or the file. If you already have a stack with this name, the upload becomes its next version.' })}
      <details class="fold" ${refusal === null ? null : html`open`}>
        <summary>Catalog entry</summary>
        <div class="form">
          <p class="hint">Empty fields are taken from the package.</p>
          ${catalogFields(typed, refusal)}
        </div>
      </details>
      <p class="buttons"><button class="primary">Upload</button> <a href="${path}">Cancel</a></p>
    </form>`;
  return Promise.resolve(
    page(visit, { title: 'Upload a stack', body, status: refusal === null ? 200 : statusOf(refusal) }),
  );
}

export async function uploadStack(visit: Visit, form: UploadForm): Promise<Response> {
  const typed: Upload = { ...catalogEntryIn(form), name: form.text('name').trim(), url: form.text('url').trim() };
  const file = form.file('file');
  const { url, ...fields } = typed;
  const filled = Object.entries(fields).filter(([, value]) => value !== '');
  if (file === null && url === '') {
    const problem = 'is missing. Choose a zip file, or enter its URL.';
    return newStackPage(visit, typed, { status: 400, message: problem, problems: new Map([['file', problem]]) });
  }
  let body: object = Object.fromEntries([...filled, ['url', url]]);
  if (file !== null) {
    const sent = new FormData();
    for (const [name, value] of filled) sent.append(name, value);
    sent.append('file', file);
    body = sent;
  }
  const pushed = await visit.send<StackAnswer & { readonly outcome: string }>('POST', '/v1/stacks', body);
  if (!pushed.ok) return newStackPage(visit, typed, pushed.refusal);
  return visit.context.redirect(`${stackPath(pushed.body)}?notice=${pushed.body.outcome}`, 303);
}

const visibilities = [
  { value: 'global', label: 'All organizations' },
  { value: 'private', label: 'Owner only' },
] as const;

type Edited = CatalogEntry & { readonly visibility: string };

const textsOf = ({ title, description, category, icon, visibility }: StackAnswer): Edited => ({
  title,
  description,
  category: category ?? '',
  icon: icon ?? '',
  visibility,
});

const typedIn = (form: Form): Edited => ({ ...catalogEntryIn(form), visibility: form.text('visibility') });

const toBody = ({ category, icon, ...others }: Edited) => ({
  ...others,
  category: category === '' ? null : category,
  icon: icon === '' ? null : icon,
});

function editPageOf(visit: Visit, stack: StackAnswer, form: Form | null, refusal: Refusal | null) {
  const typed = form === null ? textsOf(stack) : typedIn(form);
  const back = stackPath(stack);
  const isAdmin = visit.signedIn.principal.platformRole === 'admin';
  const body = html`<form class="form" method="post" action="${back}">
    ${formToken(visit)} ${beganWith(toBody(textsOf(stack)), form)} ${refused(refusal)} ${catalogFields(typed, refusal)}
    ${isAdmin ? chooser({ name: 'visibility', label: 'Visibility', options: visibilities, chosen: typed.visibility, hint: '"All organizations" lets every organization see and apply the stack.', problem: problemOf(refusal, 'visibility', 'Visibility') }) : null}
    <p class="buttons"><button class="primary">Save</button> <a href="${back}">Cancel</a></p>
  </form>`;
  return page(visit, { title: `Edit ${stack.title}`, body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function editStackPage(visit: Visit, name: string): Promise<Response> {
  const stack = await readStack(visit, name);
  return editPageOf(visit, stack, null, null);
}

export async function changeStack(visit: Visit, name: string, form: Form): Promise<Response> {
  const stack = await readStack(visit, name);
  const { visibility, ...entry } = toBody(typedIn(form));
  // Visitors who may not set the visibility have no such field.
  const isVisibilityChanged = visibility !== '' && visibility !== stack.visibility;
  const changes = changesIn(form, { ...entry, ...(isVisibilityChanged && { visibility }) });
  const path = `/v1/stacks/${stack.id}`;
  const changed = isEmpty(changes) ? null : await visit.send<StackAnswer>('PATCH', path, changes);
  if (changed?.ok === false) return editPageOf(visit, stack, form, changed.refusal);
  return visit.context.redirect(`${stackPath(stack)}?notice=saved`, 303);
}

export async function deleteStackPage(visit: Visit, name: string, refusal: Refusal | null = null): Promise<Response> {
  const stack = await readStack(visit, name);
  const running = await visit.get<PageAnswer<RunAnswer>>(
    `/v1/runs?stack=${encodeURIComponent(stack.name)}&status=APPLIED&limit=1`,
  );
  const { total } = running.pagination;
  const body = confirmForm(visit, {
    action: `${stackPath(stack)}/delete`,
    back: stackPath(stack),
    button: `Delete ${stack.name}`,
    refusal,
    body: html`<p>
        The stack <strong>${stack.title}</strong> (<code>${stack.name}</code>) and its packages are deleted from the
        catalog. It can no longer be applied${stack.visibility === 'global' ? ' in any organization' : ''}.
      </p>
      <p>
        ${
          total === 0
            ? 'No run visible to you has applied this stack.'
            : html`<strong>It is applied ${total === 1 ? 'once' : `${total} times`}.</strong> Its resources keep
                running. You can destroy them from the
                <a href="/portal/runs?stack=${encodeURIComponent(stack.name)}">runs</a>, but not retry these runs.`
        }
      </p>`,
  });
  return page(visit, { title: `Delete ${stack.title}`, body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function deleteStack(visit: Visit, name: string): Promise<Response> {
  const stack = await readStack(visit, name);
  const gone = await visit.send('DELETE', `/v1/stacks/${stack.id}`);
  if (!gone.ok) return deleteStackPage(visit, name, gone.refusal);
  return visit.context.redirect(`${path}?notice=deleted`, 303);
}
