import { createInterface, type Interface } from 'node:readline';
import { formatUsd, parseDecimal, PICO_DIGITS } from '#base/money.ts';
import {
  cleanText,
  type Command,
  type CommandContext,
  exitCodes,
  FailedError,
  jsonText,
  textFlag,
  textFlags,
  UsageError,
} from '#edge/cli/shell/shell.ts';
import type { Answer, Bill, Listener, Message, Question } from './chat-answer.ts';
import { contentOf, readFilePart, readImagePart } from './chat-input.ts';
import { type ListedModel, modelStatuses, readModels } from './models.ts';

export { codeCommand } from './code.ts';
export { loginCommands } from './login.ts';
export { modelsCommand } from './models.ts';

/** `headgate chat`: prints one answer to the input, or holds a conversation on a terminal. */

const chatTasks = ['chat', 'vision', 'code'];

async function chat(context: CommandContext): Promise<number> {
  const { words, terminal, json } = context;
  const parts = [...textFlags(context, 'file').map(readFilePart), ...textFlags(context, 'image').map(readImagePart)];
  const isPiped = !process.stdin.isTTY;
  const handedIn = isPiped ? (await terminal.readInput()).trim() : '';
  const said = [handedIn, words.join(' ')].filter((text) => text !== '').join('\n\n');
  const isConversation = said === '' && !isPiped && terminal.isWatched && !json;
  if (said === '' && parts.length === 0 && !isConversation) {
    throw new UsageError(
      'no question: give words, standard input, or --file; on a terminal without them, a conversation starts',
    );
  }
  const options = readOptions(context);
  const model = await chooseModel(context);
  const system = textFlag(context, 'system');
  const messages: Message[] = system === null ? [] : [{ role: 'system', content: system }];
  if (isConversation) return converse(context, { ...options, model, messages }, parts);
  messages.push({ role: 'user', content: contentOf(said, parts) });
  const answer = await answerOnce(context, { ...options, model, messages });
  if (json) context.out(jsonText(toJson(answer)));
  return answer.isStopped ? exitCodes.interrupted : exitCodes.ok;
}

function readOptions(
  context: CommandContext,
): Pick<Question, 'maxTokens' | 'temperature' | 'maxCost' | 'allowsFallback'> {
  const number = (name: string, pattern: RegExp, what: string): number | null => {
    const text = textFlag(context, name);
    if (text === null) return null;
    if (!pattern.test(text)) throw new UsageError(`--${name} must be ${what}`);
    return Number(text);
  };
  return {
    maxTokens: number('max-tokens', /^[1-9]\d{0,8}$/, 'a number of tokens'),
    temperature: number('temperature', /^\d(\.\d+)?$/, 'a number such as 0.7'),
    maxCost: textFlag(context, 'max-cost'),
    allowsFallback: context.flags['allow-fallback'] === true,
  };
}

/** Returns the named model, otherwise a chat model, preferably one that runs. @throws FailedError */
async function chooseModel(context: CommandContext): Promise<string> {
  const named = textFlag(context, 'model');
  if (named !== null) return named;
  const models = await readModels(context.api);
  const fitting = models.filter(({ task_type: task }) => chatTasks.includes(task));
  const order: readonly string[] = modelStatuses;
  const rank = ({ status }: ListedModel): number => (order.includes(status) ? order.indexOf(status) : order.length);
  const [best] = fitting.toSorted((a, b) => rank(a) - rank(b));
  if (best === undefined) throw new FailedError('this key has no chat model; "headgate models" lists its models');
  return best.id;
}

function toJson({ requestId, model, content, reasoning, finishReason, isStopped, bill }: Answer) {
  return {
    object: 'chat',
    request_id: requestId,
    model,
    content,
    reasoning: reasoning === '' ? null : reasoning,
    finish_reason: finishReason,
    stopped: isStopped,
    input_tokens: bill?.inputTokens ?? null,
    output_tokens: bill?.outputTokens ?? null,
    cost: bill?.cost ?? null,
  };
}

/**
 * Asks the model once. Ctrl-C ends the answer and not the program, which then prints the cost; a second Ctrl-C does not
 * wait for the cost.
 */
async function answerOnce(context: CommandContext, question: Question, lines?: Interface): Promise<Answer> {
  // Imported on use: the package takes longer to load than most commands take to run.
  const { askModel } = await import('./chat-answer.ts');
  const stop = new AbortController();
  const end = (): void => stop.abort();
  process.once('SIGINT', end);
  lines?.on('SIGINT', end);
  const progress = context.terminal.progress(`waiting for ${cleanText(question.model)}`);
  const printer = createPrinter(context, () => progress.end());
  try {
    const answer = await askModel(context, question, printer, stop.signal);
    printer.end();
    if (!context.json) context.err(`${context.terminal.paintError('dim', billText(answer))}\n`);
    return answer;
  } finally {
    printer.end();
    progress.end();
    process.off('SIGINT', end);
    lines?.off('SIGINT', end);
  }
}

/** Prints the answer on standard output, and the model's reasoning on standard error, so that no pipe contains it. */
function createPrinter(
  { out, err, json, terminal, flags }: CommandContext,
  begin: () => void,
): Listener & { end(): void } {
  let [where, last]: ['nowhere' | 'reasoning' | 'content', string] = ['nowhere', ''];
  // Text of a model may contain control characters.
  const shown = (text: string): string => (terminal.isWatched ? cleanText(text) : text);
  const goTo = (next: typeof where): void => {
    begin();
    if (where === 'reasoning' && next !== where) err(last.endsWith('\n') ? '\n' : '\n\n');
    if (where !== next && next === 'reasoning') err(terminal.paintError('dim', 'thinking:\n'));
    where = next;
  };
  return {
    reasoning(text) {
      if (json || flags['no-reasoning'] === true) return;
      goTo('reasoning');
      last = text;
      err(terminal.paintError('dim', cleanText(text)));
    },
    content(text) {
      if (json) return;
      goTo('content');
      last = text;
      out(shown(text));
    },
    end() {
      begin();
      if (where === 'reasoning') err('\n');
      if (where === 'content' && !last.endsWith('\n')) out('\n');
      where = 'nowhere';
    },
  };
}

function billText({ isStopped, bill, model, requestId, finishReason }: Answer): string {
  const head = isStopped ? 'stopped; ' : finishReason === 'length' ? 'cut off at the token limit; ' : '';
  if (requestId === null)
    return `${head}no answer had arrived yet; "headgate usage requests" shows whether it was charged`;
  if (bill === null) return `${head}the cost is not known yet: headgate usage requests (request ${requestId})`;
  return `${head}${model}: ${tokensText(bill)}, $${bill.cost}`;
}

const tokensText = ({ inputTokens, outputTokens }: Bill): string => `${inputTokens} tokens in, ${outputTokens} out`;

const conversationHelp = `/new starts a new conversation, /model ID changes the model, /file PATH adds a file or an
image to the next message, /exit or Ctrl-D ends; \\ at the end of a line continues the message on the next line,
Ctrl-C stops an answer, or discards the typed text
`;

interface Conversation {
  question: Question;
  messages: Message[];
  parts: ReturnType<typeof readFilePart>[];
  costPicoUsd: bigint;
}

/**
 * Holds a conversation until Ctrl-D, /exit, or Ctrl-C while nothing is answered and nothing typed. A message that
 * failed may be sent again.
 */
async function converse(
  context: CommandContext,
  question: Question,
  parts: readonly ReturnType<typeof readFilePart>[],
): Promise<number> {
  const { err, terminal } = context;
  err(terminal.paintError('dim', `${question.model}; /help lists the commands, Ctrl-D ends\n`));
  const state: Conversation = { question, messages: [...question.messages], parts: [...parts], costPicoUsd: 0n };
  const lines = createInterface({ input: process.stdin, output: process.stderr, terminal: true, prompt: '> ' });
  let isClosed = false;
  lines.on('close', () => (isClosed = true));
  let pending = '';
  lines.prompt();
  let isInterrupted = false;
  const interrupt = (): void => {
    isInterrupted = lines.line === '' && pending === '';
    if (isInterrupted) return lines.close();
    // Discards the typed text, as shells do.
    pending = '';
    lines.write(null, { ctrl: true, name: 'e' });
    lines.write(null, { ctrl: true, name: 'u' });
    err('^C\n');
    lines.setPrompt('> ');
    lines.prompt();
  };
  lines.on('SIGINT', interrupt);
  for await (const line of lines) {
    if (line.endsWith('\\')) {
      pending += `${line.slice(0, -1)}\n`;
    } else {
      const text = (pending + line).trim();
      pending = '';
      if (['/exit', '/quit'].includes(text)) break;
      lines.off('SIGINT', interrupt);
      await step(context, state, text, lines);
      lines.on('SIGINT', interrupt);
    }
    if (isClosed) break;
    lines.setPrompt(pending === '' ? '> ' : '. ');
    lines.prompt();
  }
  lines.close();
  err(`\n${terminal.paintError('dim', `$${formatUsd(state.costPicoUsd)} in total`)}\n`);
  return isInterrupted ? exitCodes.interrupted : exitCodes.ok;
}

async function step(context: CommandContext, state: Conversation, text: string, lines: Interface): Promise<void> {
  if (text === '') return;
  try {
    if (text.startsWith('/')) obey(context, state, text);
    else await exchange(context, state, text, lines);
  } catch (error) {
    if (!(error instanceof FailedError || error instanceof UsageError)) throw error;
    const sentence = context.terminal.sentence(`headgate: ${error.message}`).slice('headgate:'.length);
    context.err(`${context.terminal.paintError('red', 'headgate:')}${sentence}\n`);
    if (error instanceof FailedError && error.requestId !== null) context.err(`  request ${error.requestId}\n`);
  }
}

function obey({ err }: CommandContext, state: Conversation, text: string): void {
  const [command = '', ...rest] = text.split(/\s+/);
  const word = rest.join(' ');
  if (command === '/help') err(conversationHelp);
  else if (command === '/new') state.messages = [...state.question.messages];
  else if (command === '/model' && word !== '') state.question = { ...state.question, model: word };
  else if (command === '/file' && word !== '') state.parts.push(readFilePart(word));
  else throw new UsageError(`unknown or incomplete command ${command}; /help lists the commands`);
}

async function exchange(context: CommandContext, state: Conversation, text: string, lines: Interface): Promise<void> {
  const asked: Message = { role: 'user', content: contentOf(text, state.parts) };
  const messages = [...state.messages, asked];
  const answer = await answerOnce(context, { ...state.question, messages }, lines);
  state.costPicoUsd += parseDecimal(answer.bill?.cost ?? '0', PICO_DIGITS) ?? 0n;
  state.parts = [];
  // The part of an answer before it was stopped stays in the conversation.
  state.messages = answer.content === '' ? messages : [...messages, { role: 'assistant', content: answer.content }];
}

export const chatCommand: Command = {
  name: 'chat',
  usage: '[WORDS…] [-m MODEL] [-s TEXT] [-f FILE]… [--image FILE|URL]… [--max-cost USD] [--allow-fallback]',
  summary:
    'Ask a model: give a question as words, on standard input or in files to get one answer, or nothing to start a ' +
    'conversation on the terminal. The answer goes to standard output, cost and reasoning go to standard error.',
  words: { min: 0, max: 10_000 },
  options: {
    model: { type: 'string', short: 'm', names: 'models', about: 'default: a chat model, preferably a running one' },
    system: { type: 'string', short: 's', about: 'the system prompt' },
    file: { type: 'string', short: 'f', multiple: true, about: 'a text or image file; may be repeated' },
    image: { type: 'string', multiple: true, about: 'a file or a URL; may be repeated' },
    'max-tokens': { type: 'string', about: 'maximum tokens per answer' },
    temperature: { type: 'string', about: 'such as 0.7' },
    'max-cost': { type: 'string', about: 'maximum cost of the answer in USD' },
    'allow-fallback': { type: 'boolean', about: 'let another model answer if this one cannot' },
    'no-reasoning': { type: 'boolean', about: "hide the model's reasoning" },
  },
  run: chat,
};
