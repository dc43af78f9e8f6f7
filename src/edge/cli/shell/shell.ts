export {
  jsonText,
  minuteText,
  parseAnswer,
  pathOf,
  printList,
  printOne,
  queryOf,
  queryText,
  type Read,
  readAfterList,
  readCursorList,
  readList,
  readText,
  timeText,
  yamlText,
} from './answers.ts';
export { type ApiClient, createApiClient, keyOf } from './api-client.ts';
export { bareGroup, findCommand, nameFirst, parseWords } from './command-line.ts';
export {
  type CliOutput,
  type Command,
  type CommandContext,
  type CommandOption,
  exitCodes,
  type Flag,
  listFlag,
  type NamedThing,
  namedThings,
  durationFlag,
  textFlag,
  textFlags,
} from './command.ts';
export { completionCommand } from './completion.ts';
export { confirm, type Ending, yesOption } from './confirm.ts';
export { FailedError, UsageError } from './errors.ts';
export { commandHelp, commandList, overview } from './help.ts';
export { codeOf, elsewhereText, refusalText, strangerText, unreachableText } from './refusals.ts';
export { createPatience } from './patience.ts';
export { cleanLine, cleanText, fits, forTerminal, renderTable, wrap } from './table.ts';
export { createTerminal, type Terminal } from './terminal.ts';
export { loadYaml } from './yaml.ts';
