import type { EngineFileAnswer, EngineFileCheckAnswer, EngineListAnswer } from '#edge/contract/engines.ts';
import { page } from '#edge/portal/frame/frame.ts';
import {
  area,
  copyable,
  field,
  type Form,
  formToken,
  html,
  type Html,
  notice,
  queryOf,
  type Refusal,
  section,
  select,
  tabs,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import {
  type Driver,
  drivers,
  fieldsOf,
  type FileField,
  type FileForm,
  formOf,
  groups,
  textOf,
} from './engine-file-fields.ts';
import { engineApiPath, enginePath } from './engine-words.ts';

/** A form that shows the text of an engine file. It writes no file: files are changed where they are kept. */

const path = '/portal/engine-file';

/** The engine whose file the form began with, and its path; null for a new file. */
interface Origin {
  readonly engine: string;
  readonly file: string;
}

const driverNames: Readonly<Record<Driver, string>> = {
  docker: 'Docker',
  process: 'Process',
  swarm: 'Swarm',
  external: 'External',
};

const driverHints: Readonly<Record<Driver, string>> = {
  docker: 'Containers on this machine, or on the hosts in hosts.yaml.',
  process: 'A child process of the gateway.',
  swarm: 'Services of a Docker Swarm.',
  external: 'An engine that Headgate does not start or stop.',
};

const driverIn = (text: string): Driver => drivers.find((one) => one === text) ?? 'docker';

export async function engineFilePage(visit: Visit): Promise<Response> {
  const engine = queryOf(visit.context, 'engine');
  if (engine === '') {
    const driver = driverIn(queryOf(visit.context, 'driver'));
    return show(visit, null, { driver, values: { task_type: 'chat' }, more: '' });
  }
  const { file, text } = await visit.get<EngineFileAnswer>(engineApiPath(engine, '/file'));
  return show(visit, { engine, file }, formOf(text));
}

/** Shows the text for the sent form, or its problems. */
export async function showEngineFile(visit: Visit, form: Form): Promise<Response> {
  const driver = driverIn(form.text('driver'));
  const names = fieldsOf(driver).map(({ name }) => name);
  const values = Object.fromEntries(names.map((name) => [name, form.text(name).replaceAll('\r\n', '\n').trim()]));
  const sent = { driver, values, more: form.text('more').replaceAll('\r\n', '\n') };
  const engine = form.text('engine');
  const origin = engine === '' ? null : { engine, file: form.text('file') };
  const text = textOf(sent);
  const name = nameOf(origin, values['id'] ?? '');
  const checked = await visit.send<EngineFileCheckAnswer>('POST', '/v1/admin/engine-files/check', { name, text });
  const taken = origin === null ? await takenBy(visit, name) : [];
  const result = { name, text, problems: [...taken, ...(checked.ok ? checked.body.problems : [])] };
  return show(visit, origin, sent, checked.ok ? result : { ...result, refusal: checked.refusal });
}

/** A new file must not replace another one. */
async function takenBy(visit: Visit, name: string): Promise<EngineFileCheckAnswer['problems']> {
  const { data } = await visit.get<EngineListAnswer>('/v1/admin/engines');
  const other = data.find(({ file }) => file.split('/').at(-1) === name);
  if (other === undefined) return [];
  return [{ line: null, field: 'id', message: `must be another: ${other.file} is the file of ${other.id}` }];
}

/** Returns the file's own name, or one after the id. */
function nameOf(origin: Origin | null, id: string): string {
  const named = origin?.file.split('/').at(-1) ?? '';
  if (named !== '') return named;
  const word = id.replaceAll(/[^A-Za-z0-9._-]+/g, '-').replace(/^[^A-Za-z0-9_]+/, '');
  return `${word === '' ? 'engine' : word.slice(0, 100)}.yaml`;
}

interface Result {
  readonly name: string;
  readonly text: string;
  readonly problems: EngineFileCheckAnswer['problems'];
  /** Why the text could not be checked. */
  readonly refusal?: Refusal;
}

function show(visit: Visit, origin: Origin | null, form: FileForm, result: Result | null = null) {
  const isGood = result !== null && result.problems.length === 0 && result.refusal === undefined;
  const body = html`<p class="lead">
      The form writes no file. It shows the YAML to save or to commit, and checks it as a reload does.
    </p>
    ${result === null ? null : isGood ? textSection(visit, result) : problemsOf(result)}
    ${formSection(visit, origin, form, result)}`;
  const title = origin === null ? 'New engine file' : `Engine file of ${origin.engine}`;
  return page(visit, { title, body, status: result === null || isGood ? 200 : 422 });
}

function textSection(visit: Visit, { name, text }: Result): Html {
  return section(
    'text',
    'File',
    html`${copyable('engine-file', text)}
      <p>
        Save the text as <code>${name}</code> in the engines folder of each gateway, or commit it there. Then reload the
        engine files: <code>headgate engines reload</code>, or the button.
      </p>
      <form method="post" action="/portal/engines-reload">
        ${formToken(visit)}<button>Reload engine files</button>
      </form>`,
  );
}

function problemsOf({ problems, refusal, text }: Result): Html {
  if (refusal !== undefined) return notice('bad', refusal.message);
  return html`${notice(
      'bad',
      html`<p><strong>A gateway would reject this file.</strong></p>
        <ul class="plain-list">
          ${problems.map(
            ({ line, field: name, message }) =>
              html`<li>
                ${line === null ? null : `Line ${line}: `}${name === null ? null : html`<code>${name}</code> `}${message}
              </li>`,
          )}
        </ul>`,
    )}
    <details class="fold">
      <summary>Text of the file</summary>
      ${copyable('engine-file', text)}
    </details>`;
}

function formSection(visit: Visit, origin: Origin | null, form: FileForm, result: Result | null): Html {
  const { driver, values, more } = form;
  const refusal = refusalOf(result, driver);
  const shown = groups.map(({ title, fields }) => {
    const own = fields.filter((one) => one.drivers?.includes(driver) ?? true);
    const inputs = own.map((one) => input(one, values[one.name] ?? '', refusal));
    return html`<fieldset>
      <legend>${title}</legend>
      ${title === 'Engine' ? inputs : html`<div class="grid">${inputs}</div>`}
    </fieldset>`;
  });
  const hint = html`YAML of all fields that are not above. <code>engines/engine.schema.json</code> lists them. Comments
    beside a field above are not kept.`;
  return html`${origin === null ? driverTabs(driver) : null}
    <form class="form" method="post" action="${path}">
      ${formToken(visit)}
      <input type="hidden" name="driver" value="${driver}" />
      <input type="hidden" name="engine" value="${origin?.engine ?? ''}" />
      <input type="hidden" name="file" value="${origin?.file ?? ''}" />
      ${shown} ${area({ name: 'more', label: 'More settings', value: more, hint, refusal, rows: 8 })}
      <p class="buttons">
        <button class="primary">Show file</button>
        <a href="${origin === null ? '/portal/engines' : enginePath(origin.engine)}">Cancel</a>
      </p>
    </form>`;
}

function driverTabs(driver: Driver): Html {
  return html`${tabs(
      'Driver',
      drivers.map((one) => ({ text: driverNames[one], href: `${path}?driver=${one}`, isHere: one === driver })),
    )}
    <p class="hint">${driverHints[driver]}</p>`;
}

function input(
  { name, label, kind, hint, placeholder, choices }: FileField,
  value: string,
  refusal: Refusal | null,
): Html {
  if (choices !== undefined) {
    return select(
      name,
      label,
      choices.map((one) => ({ value: one, label: one })),
      value,
    );
  }
  const common = {
    name,
    label,
    value,
    refusal,
    ...(hint !== undefined && { hint }),
    ...(placeholder !== undefined && { placeholder }),
  };
  if (kind === 'words') return area({ ...common, rows: 4 });
  return field({ ...common, maxLength: 2048, ...(kind === 'number' && { inputMode: 'decimal' as const }) });
}

/** Returns the problems by the field that shows them; a field that is in "More settings" is shown there. */
function refusalOf(result: Result | null, driver: Driver): Refusal | null {
  if (result === null || result.problems.length === 0) return null;
  const names = fieldsOf(driver).map(({ name }) => name);
  const problems = new Map<string, string>();
  for (const { field: given, message } of result.problems) {
    const name = (given ?? '').replaceAll('[', '.').replaceAll(']', '');
    const shown = names.find((one) => name === one || name.startsWith(`${one}.`) || one.startsWith(`${name}.`));
    const at = shown ?? 'more';
    if (!problems.has(at)) problems.set(at, sentence(message, shown === undefined ? given : null));
  }
  return { status: 422, message: 'A gateway would reject this file.', problems };
}

/** Returns the problem as the end of a sentence that begins with the label of the field. */
function sentence(message: string, about: string | null): string {
  if (about !== null) return `has a problem with ${about}: ${message}`;
  if (message === 'this field is missing') return 'is missing';
  return /^(?:must|is|has|can|cannot|does|needs)\b/.test(message) ? message : `is invalid: ${message}`;
}
