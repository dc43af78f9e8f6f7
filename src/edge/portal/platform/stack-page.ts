import type { StackAnswer, StackInputAnswer } from '#edge/contract/stacks.ts';
import { page } from '#edge/portal/frame/frame.ts';
import {
  badge,
  count,
  counted,
  html,
  type Html,
  type MaybeHtml,
  notice,
  noticeOf,
  pathWith,
  records,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { valueText } from './input-fields.ts';
import { stackIcon, stackPath, visibilityBadge } from './stack-list.ts';
import { mayRead, readVersions, versionSection } from './stack-versions.ts';
import { facts, moment } from './widgets.ts';

/** One stack: its description, its inputs and its actions. */

const notices: Readonly<Record<string, (version: number) => string>> = {
  created: () => 'Stack added to the catalog.',
  new_version: (version) => `Version ${version} uploaded. Existing runs keep their version.`,
  changed: (version) => `Changes saved. The uploaded package is the same as version ${version}.`,
  unchanged: (version) => `Nothing changed: the uploaded package is the same as version ${version}.`,
  saved: () => 'Changes saved.',
  reverted: (version) => `Reverted: version ${version} has the package of an earlier version.`,
};

/** @param version number of the version to read; the newest one if empty */
export const readStack = ({ get }: Visit, name: string, version = ''): Promise<StackAnswer> =>
  get<StackAnswer>(pathWith(`/v1/stacks/${encodeURIComponent(name)}`, { version }));

/** True if the API lets the visitor change the stack: platform administrators, and owners of a private stack. */
export function mayChange({ mayOwn, signedIn }: Visit, { visibility, owner_id: owner }: StackAnswer): boolean {
  if (!mayOwn('stacks')) return false;
  return signedIn.principal.platformRole === 'admin' || (visibility === 'private' && owner !== null);
}

export async function stackPage(visit: Visit, name: string): Promise<Response> {
  const stack = await readStack(visit, name);
  const versions = await readVersions(visit, stack);
  const path = stackPath(stack);
  const said = noticeOf(visit, notices)?.(stack.version.number);
  const changes = mayChange(visit, stack);
  const actions = html`${visit.may('runs') ? html`<a class="button primary" href="${path}/apply">Apply</a>` : null}
  ${mayRead(visit, stack) ? html`<a class="button" href="${path}/download">Download</a>` : null}
  ${changes ? html`<a class="button" href="${path}/edit">Edit</a>` : null}
  ${changes && !stack.builtin ? html`<a class="button danger" href="${path}/delete">Delete</a>` : null}`;
  // The style keeps line breaks, so the template must not add any around the description.
  const description = stack.description === '' ? html`<span class="quiet">No description.</span>` : stack.description;
  const body = html`${said === undefined ? null : notice('good', said)}
    <div class="stack-head">
      ${stackIcon(stack)}
      <div class="card-text">
        <p class="badges">
          ${stack.category === null ? null : badge('plain', stack.category)} ${visibilityBadge(stack)}
        </p>
        <p class="prose">${description}</p>
      </div>
    </div>
    ${
      stack.warnings.length === 0
        ? null
        : notice(
            'plain',
            html`<p><strong>Upload warnings</strong></p>
              <ul class="plain-list">
                ${stack.warnings.map((text) => html`<li>${text}</li>`)}
              </ul>`,
          )
    }
    ${inputTable(stack.inputs)} ${versionSection(visit, stack, versions)} ${about(stack)}`;
  return page(visit, { title: stack.title, actions, body });
}

function inputTable(inputs: readonly StackInputAnswer[]): Html {
  return html`<section aria-labelledby="inputs-title">
    <h2 id="inputs-title">Inputs</h2>
    ${
      inputs.length === 0
        ? html`<p class="quiet">This stack has no inputs.</p>`
        : records({
            caption: 'Stack inputs',
            columns: ['Name', 'Type', 'Default', 'Description'],
            rows: inputs.map((input) => [
              html`<code>${input.name}</code> ${input.required ? badge('busy', 'required') : null}
                ${input.sensitive ? badge('plain', 'secret') : null}`,
              html`<code>${input.type_expression ?? input.type}</code>`,
              defaultOf(input),
              html`<span class="wrap">${input.description}</span>`,
            ]),
          })
    }
  </section>`;
}

function defaultOf({ default: value, sensitive, required }: StackInputAnswer): MaybeHtml {
  if (required || value === null || value === undefined) return html`<span class="quiet">none</span>`;
  if (sensitive) return html`<span class="quiet">not shown</span>`;
  const text = valueText(value);
  return text === '' ? html`<span class="quiet">empty</span>` : html`<code class="wrap">${text}</code>`;
}

const mirrorWords = (inMirror: boolean | null): MaybeHtml => {
  if (inMirror === null) return html`<span class="quiet">from its registry</span>`;
  return inMirror ? badge('good', 'in the mirror') : badge('bad', 'not in the mirror');
};

function about(stack: StackAnswer): Html {
  const { version, web } = stack;
  const where =
    web === null ? 'none' : `port ${web.port ?? 'set by each run'}${web.node === null ? '' : ` on node ${web.node}`}`;
  return html`<section aria-labelledby="about-title">
    <h2 id="about-title">Details</h2>
    ${facts([
      { term: 'Name', text: html`<code>${stack.name}</code>` },
      { term: 'Visibility', text: seenBy(stack) },
      {
        term: 'Hardware',
        text:
          stack.applicable_profiles === null
            ? 'any profile'
            : `nodes with profile ${stack.applicable_profiles.join(' or ')}`,
      },
      { term: 'Web address', text: where },
      {
        term: 'Version',
        text: html`${version.number}, uploaded ${moment(version.created_at)}, ${counted(version.files, 'file')},
        ${count(version.size)} bytes zipped`,
      },
      { term: 'SHA-256', text: html`<code>${version.sha256}</code>` },
      {
        term: 'Terraform',
        text: stack.required_versions.length === 0 ? 'any version' : stack.required_versions.join(', '),
      },
      {
        term: 'Providers',
        text:
          stack.providers.length === 0
            ? 'built-in provider only'
            : html`<ul class="plain-list">
                ${stack.providers.map(({ source, version: constraint, in_mirror: mirrored }) => html`<li><code>${source}</code> ${constraint ?? ''} ${mirrorWords(mirrored)}</li>`)}
              </ul>`,
      },
    ])}
  </section>`;
}

function seenBy({ visibility, builtin }: StackAnswer): string {
  if (builtin) return 'all organizations (included with Headgate)';
  return visibility === 'global' ? 'all organizations' : 'owner and platform administrators';
}
