import {
  type Command,
  type CommandContext,
  type CommandOption,
  exitCodes,
  jsonText,
  parseAnswer,
  pathOf,
  printList,
  queryText,
  type Read,
  readAfterList,
  textFlag,
  UsageError,
} from '#edge/cli/shell/shell.ts';
import { numberOrNone } from './keys.ts';
import { projectIdOf } from './projects.ts';

/** The command for the limits of a project per model. Fields that a newer gateway adds are ignored. */

const limits = {
  'requests-per-minute': 'max_requests_per_1_minute',
  'tokens-per-minute': 'max_tokens_per_1_minute',
  'requests-per-day': 'max_requests_per_1_day',
} as const;

const rateLimit = async () => (await import('#edge/contract/organization-projects.ts')).rateLimitSchema;
type RateLimit = Read<typeof rateLimit>;

const headings = ['MODEL', 'REQUESTS/MIN', 'TOKENS/MIN', 'REQUESTS/DAY'];
const shown = (limit: number | null): string => (limit === null ? '-' : String(limit));
const row = (one: RateLimit): string[] => [one.model, ...Object.values(limits).map((field) => shown(one[field]))];
const none =
  'no enabled model is allowed for this organization; a platform administrator can add an engine file, or change the ' +
  "organization's allowed models";

/** Returns the limits to set; null if there are none. @throws UsageError */
function changesOf(context: CommandContext): Readonly<Record<string, number | null>> | null {
  const said: Record<string, number | null> = {};
  for (const [flag, field] of Object.entries(limits)) {
    const value = numberOrNone(context, flag);
    if (value !== undefined) said[field] = value;
  }
  return Object.keys(said).length === 0 ? null : said;
}

async function showOrSet(context: CommandContext): Promise<number> {
  const [word = '', model] = context.words;
  const changes = changesOf(context);
  if (changes !== null && model === undefined)
    throw new UsageError('the model to limit is missing: headgate projects limits ID|NAME MODEL');
  const path = `/v1/organization/projects/${encodeURIComponent(await projectIdOf(context, word))}/rate_limits`;
  if (changes !== null) {
    const query = queryText({ organization_id: textFlag(context, 'org') });
    const answer = await context.api.call('POST', pathOf(path, `rl-${model}`) + query, { body: changes });
    if (context.json) context.out(jsonText(answer));
    else printList(context, [await parseAnswer(rateLimit, answer)], { headings, row, none });
    return exitCodes.ok;
  }
  const all = await readAfterList(context, { path, item: rateLimit });
  const wanted = model === undefined ? all : all.filter((one) => one.model === model);
  return printList(context, wanted, { headings, row, none });
}

const option = (what: string): CommandOption => ({ type: 'string', about: `${what}: a number, or none for no limit` });

export const rateLimitCommands: readonly Command[] = [
  {
    name: 'projects limits',
    usage: 'ID|NAME [MODEL] [--requests-per-minute N|none]… [--org ID]',
    summary: 'List the limits of a project per model, or set those of one model; "-" means unlimited.',
    words: { min: 1, max: 2 },
    options: {
      'requests-per-minute': option('requests per minute'),
      'tokens-per-minute': option('tokens per minute'),
      'requests-per-day': option('requests per day (UTC)'),
      org: { type: 'string', about: 'another organization, for platform administrators' },
    },
    run: showOrSet,
  },
];
