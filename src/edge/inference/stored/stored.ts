/** Responses that the gateway stores: naming them in requests, keeping them, and the routes to read and delete them. */
export { readConversation, type ConversationParts } from './conversation.ts';
export { keepInput, prepareResponse } from './keep-response.ts';
export { addResponseRoutes } from './response-routes.ts';
