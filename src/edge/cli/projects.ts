import {
  cleanLine,
  type Command,
  type CommandContext,
  confirm,
  exitCodes,
  FailedError,
  jsonText,
  parseAnswer,
  pathOf,
  printList,
  printOne,
  queryText,
  type Read,
  readList,
  textFlag,
  UsageError,
  yesOption,
} from '#edge/cli/shell/shell.ts';

/** Commands over /v1/projects. Fields that a newer gateway adds to its answers are ignored. */

const project = async () => (await import('#edge/contract/projects.ts')).projectSchema;
type Project = Read<typeof project>;

const firstPage = async () => (await import('#edge/contract/projects.ts')).projectPageSchema;

const collection = '/v1/projects';
const queryOfOrg = (context: CommandContext): string => queryText({ organization_id: textFlag(context, 'org') });

const headings = ['PROJECT', 'NAME', 'VISIBLE TO', 'STATUS', 'DESCRIPTION'];

const row = ({ id, name, visibility, archived, description }: Project): string[] => [
  id,
  name,
  visibility === 'public' ? 'organization' : 'its keys',
  archived ? 'archived' : 'active',
  description,
];

function readAll(context: CommandContext): Promise<readonly Project[]> {
  const named = textFlag(context, 'org');
  const query = new URLSearchParams(named === null ? {} : { organization_id: named });
  return readList(context, { path: collection, item: project, query });
}

async function list(context: CommandContext): Promise<number> {
  return printList(context, await readAll(context), {
    headings,
    row,
    none: 'no projects; create one with "headgate projects create NAME"',
    leaveOut: ['VISIBLE TO', 'STATUS'],
  });
}

async function pathOfNamed(context: CommandContext): Promise<string> {
  const [word = ''] = context.words;
  return pathOf(collection, await projectIdOf(context, word)) + queryOfOrg(context);
}

/** Returns the id of the project with this id or name; names are unique in an organization. @throws FailedError */
export async function projectIdOf(context: CommandContext, word: string): Promise<string> {
  if (word.startsWith('proj_')) return word;
  const found = (await readAll(context)).find(({ name }) => name === word);
  if (found !== undefined) return found.id;
  throw new FailedError(`no project is named ${JSON.stringify(word)}; "headgate projects ls" lists the projects`);
}

/** Returns the id of the organization's first project. @throws FailedError */
export async function firstProjectId(context: CommandContext): Promise<string> {
  const query = queryText({ organization_id: textFlag(context, 'org'), sort: 'created_at', limit: '1' });
  const [first] = (await parseAnswer(firstPage, await context.api.call('GET', collection + query))).data;
  if (first === undefined) throw new FailedError('the organization has no project');
  return first.id;
}

async function show(context: CommandContext): Promise<number> {
  return printOne(context, await pathOfNamed(context), project);
}

function fieldsOf(context: CommandContext, flags: readonly string[]): Record<string, string> {
  const given = flags.flatMap((flag) => {
    const value = textFlag(context, flag);
    return value === null ? [] : [[flag, value] as const];
  });
  return Object.fromEntries(given);
}

async function create(context: CommandContext): Promise<number> {
  const body = { name: context.words[0], ...fieldsOf(context, ['description', 'visibility']) };
  return tell(context, await context.api.call('POST', collection + queryOfOrg(context), { body }));
}

async function edit(context: CommandContext): Promise<number> {
  const body = fieldsOf(context, ['name', 'description', 'visibility']);
  if (Object.keys(body).length === 0)
    throw new UsageError('nothing to change; "headgate projects edit --help" lists the options');
  return tell(context, await context.api.call('PATCH', await pathOfNamed(context), { body }));
}

async function archive(context: CommandContext): Promise<number> {
  const path = await pathOfNamed(context);
  const { id, name } = await parseAnswer(project, await context.api.call('GET', path));
  await confirm(context, {
    question: `Archive the project "${name}" (${id})?`,
    consequence:
      'Its keys are rejected and it gets no new keys, until "headgate projects unarchive". Its service accounts end ' +
      'permanently, with their keys.',
    done: 'archived',
  });
  return tell(context, await context.api.call('PATCH', path, { body: { archived: true } }));
}

async function unarchive(context: CommandContext): Promise<number> {
  return tell(context, await context.api.call('PATCH', await pathOfNamed(context), { body: { archived: false } }));
}

async function tell({ json, out }: CommandContext, answer: unknown): Promise<number> {
  const { id, name, archived } = await parseAnswer(project, answer);
  out(json ? jsonText(answer) : `${id} "${cleanLine(name)}": ${archived ? 'archived' : 'active'}\n`);
  return exitCodes.ok;
}

const orgOption = { org: { type: 'string', about: 'another organization, for platform administrators' } } as const;
const one = { min: 1, max: 1 } as const;
const fields = {
  description: { type: 'string', about: 'purpose of the project' },
  visibility: {
    type: 'string',
    choices: ['private', 'public'],
    about: 'public: visible to every key of the organization',
  },
} as const;

export const projectCommands: readonly Command[] = [
  {
    name: 'projects ls',
    usage: '[--org ID]',
    summary: 'List the projects of the organization; each key belongs to one.',
    words: { min: 0, max: 0 },
    options: orgOption,
    run: list,
  },
  {
    name: 'projects show',
    usage: 'ID|NAME [--org ID]',
    summary: 'Show a project.',
    words: one,
    options: orgOption,
    run: show,
  },
  {
    name: 'projects create',
    usage: 'NAME [--description TEXT] [--visibility private|public] [--org ID]',
    summary: 'Create a project.',
    words: one,
    options: { ...fields, ...orgOption },
    run: create,
  },
  {
    name: 'projects edit',
    usage: 'ID|NAME [--name NAME] [--description TEXT] [--visibility private|public] [--org ID]',
    summary: 'Change a project.',
    words: one,
    options: { name: { type: 'string', about: 'new name' }, ...fields, ...orgOption },
    run: edit,
  },
  {
    name: 'projects archive',
    usage: 'ID|NAME [--org ID] [--yes]',
    summary: 'Archive a project: it then accepts no requests and no new keys; asks first.',
    words: one,
    options: { ...yesOption, ...orgOption },
    run: archive,
  },
  {
    name: 'projects unarchive',
    usage: 'ID|NAME [--org ID]',
    summary: 'Unarchive a project.',
    words: one,
    options: orgOption,
    run: unarchive,
  },
];
