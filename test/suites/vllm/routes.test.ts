import { describe } from 'vitest';
import { describeCompletions } from './completions.ts';
import { describeMessages } from './messages.ts';
import { describeResponses } from './responses.ts';

// One vLLM, which takes most of a minute to start, serves the routes one after the other.
describe('/v1/responses on a real vLLM', () => {
  describeResponses();
});
describe('/v1/messages on a real vLLM', () => {
  describeMessages();
});
describe('/v1/completions on a real vLLM', () => {
  describeCompletions();
});
