import type { ServerResponse } from 'node:http';
import { errorEnvelope, type AppError } from '#base/errors.ts';

/**
 * The client's side of one request. A stream keeps its status open until the first frame: a failure before that is an
 * ordinary error answer. While a client waits longer, comments tell it and every proxy between that it is being served.
 */
export interface Answer {
  /** The client left before the answer was complete. */
  readonly gone: boolean;
  /** Status and headers are out. */
  readonly headSent: boolean;
  /** A frame, not only a comment, is out. */
  readonly frameSent: boolean;
  /** Headers of the answer, to be set before the head is out. */
  setHeader(name: string, value: string): void;
  /** Sends comments after 5 s, and every 10 s, until the first frame. */
  keepAlive(): void;
  /** Frames as latin1; false when the client reads slower than they come, then `onDrain` follows. */
  frames(text: string): boolean;
  /** Ends a stream with its last frames. */
  endStream(text: string): void;
  /** A whole JSON answer as latin1. */
  json(status: number, text: string): void;
  /** A refusal: a JSON answer, or an error frame and `[DONE]` in a stream that has begun. */
  error(error: AppError): void;
  /** Closes the connection of a client that nothing more can be told. */
  cut(): void;
  onGone(listener: () => void): void;
  onDrain(listener: () => void): void;
}

const firstCommentMs = 5_000;
const commentEveryMs = 10_000;
export const doneFrame = 'data: [DONE]\n\n';

/** One error frame in our envelope, then the end mark. */
export function errorFrames(error: AppError): string {
  return `data: ${latin1(JSON.stringify(errorEnvelope(error)))}\n\n${doneFrame}`;
}

const latin1 = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');

export function createAnswer(outgoing: ServerResponse): Answer {
  let gone = false;
  let frameSent = false;
  let comments: NodeJS.Timeout | null = null;
  let goneListener: (() => void) | null = null;

  outgoing.on('close', () => {
    stopComments();
    if (outgoing.writableFinished) return;
    gone = true;
    goneListener?.();
  });

  function stopComments(): void {
    if (comments === null) return;
    clearTimeout(comments);
    comments = null;
  }

  function sendHead(): void {
    if (outgoing.headersSent) return;
    outgoing.statusCode = 200;
    outgoing.setHeader('content-type', 'text/event-stream; charset=utf-8');
    outgoing.setHeader('cache-control', 'no-cache');
    outgoing.setHeader('x-accel-buffering', 'no');
  }

  function comment(): void {
    sendHead();
    outgoing.write(': waiting for the model\n\n', 'latin1');
    comments = setTimeout(comment, commentEveryMs);
  }

  function json(status: number, text: string): void {
    stopComments();
    outgoing.statusCode = status;
    outgoing.setHeader('content-type', 'application/json');
    outgoing.setHeader('content-length', text.length);
    outgoing.end(text, 'latin1');
  }

  function endStream(text: string): void {
    stopComments();
    sendHead();
    outgoing.end(text, 'latin1');
  }

  return {
    setHeader: (name, value) => {
      if (!outgoing.headersSent) outgoing.setHeader(name, value);
    },
    keepAlive() {
      comments ??= setTimeout(comment, firstCommentMs);
    },
    frames(text) {
      if (!frameSent) {
        frameSent = true;
        stopComments();
        sendHead();
      }
      return outgoing.write(text, 'latin1');
    },
    endStream,
    json,
    error(error) {
      if (outgoing.headersSent) {
        endStream(errorFrames(error));
        return;
      }
      for (const [name, value] of Object.entries(error.headers)) outgoing.setHeader(name, value);
      json(error.status, latin1(JSON.stringify(errorEnvelope(error))));
    },
    cut() {
      stopComments();
      outgoing.destroy();
    },
    onGone(listener) {
      goneListener = listener;
      if (gone) listener();
    },
    onDrain: (listener) => outgoing.on('drain', listener),
    get gone() {
      return gone;
    },
    get headSent() {
      return outgoing.headersSent;
    },
    get frameSent() {
      return frameSent;
    },
  };
}
