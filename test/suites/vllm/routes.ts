import { describe } from 'vitest';
import { describeCompletions } from './completions.ts';
import { describeMessages } from './messages.ts';
import { describeResponses } from './responses.ts';

/** Routes beside that of chats, on the vLLM of `real-engine.ts`. */
export function describeRoutes(): void {
  describe('/v1/responses on a real vLLM', () => {
    describeResponses();
  });
  describe('/v1/messages on a real vLLM', () => {
    describeMessages();
  });
  describe('/v1/completions on a real vLLM', () => {
    describeCompletions();
  });
}
