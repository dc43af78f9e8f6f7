import type { Answer } from './client-answer.ts';

/** Header with the types of the tools that the engine did not get, such as `web_search, tool_search`. */
const droppedToolsHeader = 'x-headgate-dropped-tools';

/** Names the tools that were left out of the request, or removes the header. Has no effect after the head is sent. */
export function nameDropped(answer: Answer, dropped: { readonly names: readonly string[] } | null): void {
  if (dropped === null) answer.dropHeader(droppedToolsHeader);
  else answer.setHeader(droppedToolsHeader, dropped.names.join(', '));
}
