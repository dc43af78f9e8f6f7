import { action, element } from './playground-dom.js';

/** The exchanges of a conversation: a message of the person, with an answer of each side. */

/**
 * @typedef {import('./playground-answer.js').AnswerView} AnswerView
 * @typedef {import('./playground-answer.js').ToolCall} ToolCall
 * @typedef {import('./playground-answer.js').KeptAnswer} KeptAnswer
 * @typedef {import('./playground-models.js').Model} Model
 * @typedef {import('./playground-models.js').Side} Side
 * @typedef {{ role: string, content: unknown, tool_calls?: ToolCall[], tool_call_id?: string }} Message
 * @typedef {{ text: string, image: string | null }} Asked `image`: a data URL
 * @typedef {{ asked: Asked, hadImage: boolean, answers: (KeptAnswer & { side: Side, model: string })[] }} KeptExchange
 */

/** Characters of an image that are kept for the tab. */
const keptImageMax = 200_000;

export class Exchange {
  /**
   * @param {Asked} asked
   * @param {{ edit: (exchange: Exchange) => void, regenerate: (exchange: Exchange) => void }} actions
   */
  constructor(asked, { edit, regenerate }) {
    this.asked = asked;
    /** @type {{ side: Side, view: AnswerView }[]} */
    this.answers = [];
    this.root = element('li', 'exchange');
    this.list = element('div', 'answers');
    const buttons = element('p', 'exchange-actions');
    buttons.append(
      action('plain', 'Edit', () => edit(this)),
      action('plain regenerate', 'Regenerate', () => regenerate(this)),
    );
    this.note = element('p', 'hint', asked.image === null ? '' : 'Sent with an image.');
    this.root.append(element('p', 'asked', asked.text), this.note, buttons, this.list);
  }

  clear() {
    this.answers = [];
    this.list.replaceChildren();
  }

  /**
   * @param {Side} side
   * @param {AnswerView} view
   */
  add(side, view) {
    this.answers.push({ side, view });
    this.list.append(view.root);
    this.list.classList.toggle('two', this.answers.length > 1);
  }

  /** Returns the answer of a side, or of the other side if this one was not asked. @param {Side} side */
  replyOf(side) {
    const { view } = this.answers.find((answer) => answer.side === side) ?? this.answers[0] ?? {};
    return view?.kept();
  }

  /** @returns {KeptExchange} */
  kept() {
    const { text, image } = this.asked;
    const answers = this.answers.map(({ side, view }) => ({ ...view.kept(), side, model: view.model.id }));
    const keptImage = image !== null && image.length <= keptImageMax ? image : null;
    return { asked: { text, image: keptImage }, hadImage: image !== null, answers };
  }

  /**
   * @param {KeptExchange} kept
   * @param {(id: string) => AnswerView} viewOf
   */
  restore({ asked, hadImage, answers }, viewOf) {
    if (hadImage && asked.image === null)
      this.note.textContent = 'Its image was too large to be kept, and is not sent again.';
    for (const { side, model, ...answer } of answers) {
      const view = viewOf(model);
      view.restore(answer);
      this.add(side, view);
    }
  }
}

/**
 * Returns the messages of one side before a new message. Both sides get the messages of the person; each gets its own
 * answers, or those of the other side from when it was not asked.
 * @param {readonly Exchange[]} exchanges
 * @param {Side} side
 */
export function messagesOf(exchanges, side) {
  /** @type {Message[]} */
  const messages = [];
  for (const exchange of exchanges) {
    messages.push(...heard(messages.at(-1), exchange.asked));
    const reply = exchange.replyOf(side);
    if (reply === undefined) continue;
    // The arguments of a call that ended early are no JSON, so the call is not sent.
    const { content } = reply;
    const calls = reply.isComplete ? reply.calls : [];
    messages.push({ role: 'assistant', content, ...(calls.length > 0 && { tool_calls: calls }) });
  }
  return messages;
}

/**
 * Returns the messages for the person's input. If the model called tools, the input is the result of each call.
 * @param {Message | undefined} before
 * @param {Asked} asked
 * @returns {Message[]}
 */
export function heard(before, { text, image }) {
  const content =
    image === null
      ? text
      : [
          { type: 'text', text },
          { type: 'image_url', image_url: { url: image } },
        ];
  if (before?.tool_calls === undefined) return [{ role: 'user', content }];
  return before.tool_calls.map(({ id }) => ({ role: 'tool', tool_call_id: id, content }));
}
