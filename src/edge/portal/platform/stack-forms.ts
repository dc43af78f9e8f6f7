import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
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
  type Refusal,
  refused,
  type UploadForm,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import type { PageAnswer, RunAnswer, StackAnswer } from './answers.ts';
import { stackPath } from './stack-list.ts';
import { readStack } from './stack-page.ts';
import { area, chooser, confirmForm, problemOf } from './widgets.ts';

/** Uploads, changes and deletes stacks. */

const path = '/portal/stacks';

interface Said {
  readonly title: string;
  readonly description: string;
  readonly category: string;
  readonly icon: string;
}

const iconHint =
  'One emoji, or the https address of a PNG, JPEG, GIF or WebP image, which is fetched once and shown from here.';

function saidFields({ title, description, category, icon }: Said, refusal: Refusal | null): Html {
  return html`${field({ name: 'title', label: 'Title', value: title, refusal, maxLength: 200 })}
    ${area({ name: 'description', label: 'Description', value: description, refusal, hint: 'Plain text.' })}
    <div class="grid">
      ${field({ name: 'category', label: 'Category', value: category, refusal, maxLength: 100, hint: 'Such as Scheduler, Orchestration, ML Framework or Monitoring.' })}
      ${field({ name: 'icon', label: 'Icon', value: icon, refusal, maxLength: 50_000, hint: iconHint })}
    </div>`;
}

const saidIn = (form: Form): Said => ({
  title: form.text('title').trim(),
  description: form.text('description').replaceAll('\r\n', '\n').trim(),
  category: form.text('category').trim(),
  icon: form.text('icon').trim(),
});

interface Upload extends Said {
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
      A zip of at most 10 MiB with a Terraform module, and with a manifest (manifest.yaml) where there is more to say.
      It is read completely before anything of it is kept.
      ${isAdmin ? 'As an administrator of the platform you upload it for everybody.' : 'You alone see what you upload.'}
    </p>
    ${packageProblems(refusal)}
    <form class="form" method="post" action="${path}" enctype="multipart/form-data">
      ${formToken(visit)}
      <div class="field">
        <label for="file">Zip</label>
        <input
          type="file"
          id="file"
          name="file"
          accept=".zip,application/zip"
          aria-describedby="file-hint"
          ${problem === null ? null : html`aria-invalid="true"`}
        />
        <p class="hint" id="file-hint">Or leave it, and say below where it lies.</p>
        ${problem === null ? null : html`<p class="problem">${problem}</p>`}
      </div>
      ${field({ name: 'url', label: 'Address of the zip', value: typed.url, placeholder: 'https://', refusal, maxLength: 2048, hint: 'https, of a public address. It is fetched once, now.' })}
      ${field({ name: 'name', label: 'Name', value: typed.name, refusal, maxLength: 100, hint: 'Taken from the manifest, the folder or the file where this is empty. A name of yours that is there already gets a new version.' })}
      <details class="fold" ${refusal === null ? null : html`open`}>
        <summary>What is said of it</summary>
        <div class="form">
          <p class="hint">What is empty is taken from the package.</p>
          ${saidFields(typed, refusal)}
        </div>
      </details>
      <p class="buttons"><button class="primary">Upload</button> <a href="${path}">Cancel</a></p>
    </form>`;
  return Promise.resolve(
    page(visit, { title: 'Upload a stack', body, status: refusal === null ? 200 : statusOf(refusal) }),
  );
}

export async function uploadStack(visit: Visit, form: UploadForm): Promise<Response> {
  const typed: Upload = { ...saidIn(form), name: form.text('name').trim(), url: form.text('url').trim() };
  const file = form.file('file');
  const { url, ...fields } = typed;
  const said = Object.entries(fields).filter(([, value]) => value !== '');
  if (file === null && url === '') {
    const message = 'There is no package: choose a zip, or say where it lies.';
    return newStackPage(visit, typed, { status: 400, message, problems: new Map([['file', 'is missing']]) });
  }
  let body: object = Object.fromEntries([...said, ['url', url]]);
  if (file !== null) {
    const sent = new FormData();
    for (const [name, value] of said) sent.append(name, value);
    sent.append('file', file);
    body = sent;
  }
  const pushed = await visit.send<StackAnswer & { readonly outcome: string }>('POST', '/v1/stacks', body);
  if (!pushed.ok) return newStackPage(visit, typed, pushed.refusal);
  return visit.context.redirect(`${stackPath(pushed.body)}?notice=${pushed.body.outcome}`, 303);
}

const visibilities = [
  { value: 'global', label: 'Everybody' },
  { value: 'private', label: 'Its owner alone' },
] as const;

type Edited = Said & { readonly visibility: string };

const textsOf = ({ title, description, category, icon, visibility }: StackAnswer): Edited => ({
  title,
  description,
  category: category ?? '',
  icon: icon ?? '',
  visibility,
});

const typedIn = (form: Form): Edited => ({ ...saidIn(form), visibility: form.text('visibility') });

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
    ${formToken(visit)} ${beganWith(toBody(textsOf(stack)), form)} ${refused(refusal)} ${saidFields(typed, refusal)}
    ${isAdmin ? chooser({ name: 'visibility', label: 'Who sees it', options: visibilities, chosen: typed.visibility, hint: 'What is for everybody can be applied by every organization.', problem: problemOf(refusal, 'visibility', 'Who sees it') }) : null}
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
  const { visibility, ...said } = toBody(typedIn(form));
  // Visitors who may not set the visibility have no such field.
  const isSaid = visibility !== '' && visibility !== stack.visibility;
  const changes = changesIn(form, { ...said, ...(isSaid && { visibility }) });
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
        The stack <strong>${stack.title}</strong> (<code>${stack.name}</code>) leaves the catalog, with its packages:
        nobody applies it any more${stack.visibility === 'global' ? ', in no organization' : ''}.
      </p>
      <p>
        ${
          total === 0
            ? 'Nothing that you can see runs of it.'
            : html`<strong>It is applied ${total === 1 ? 'once' : `${total} times`}.</strong> What it made there stays
                and goes on; it can be destroyed from its
                <a href="/portal/runs?stack=${encodeURIComponent(stack.name)}">runs</a>, and not be retried.`
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
