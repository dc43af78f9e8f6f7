import { describe } from 'vitest';
import { describeCompletions } from './completions.ts';
import { describeMessages } from './messages.ts';
import { describeResponses } from './responses.ts';

// One vLLM, which takes most of a minute to start, serves the routes one after the other.
describe('/v1/responses of a real vLLM', () => {
  describeResponses();
});
describe('/v1/messages of a real vLLM', () => {
  describeMessages();
});
describe('/v1/completions of a real vLLM', () => {
  describeCompletions();
});
