import { z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { CommandAuthor, OperatorCommands, UnusedStorage } from '#core/fleet/fleet.ts';
import type { Guards } from '#edge/api/shared/shared.ts';
import { authorOf, type HttpContext } from '#edge/http/http.ts';
import type { EngineOperations, OperatedEngine, RunningRequests } from './engine-operations.ts';

/** Parts and steps that the routes of engines share. */

export interface EngineRoutesParts {
  readonly guards: Guards;
  readonly operations: EngineOperations;
  readonly commands: OperatorCommands;
  readonly storage: UnusedStorage;
  readonly requests: RunningRequests;
}

export const idParams = z.object({
  id: z.string().openapi({ description: 'Catalog id, URL-encoded, such as `acme%2Fchat`', example: 'standin-chat' }),
});

interface Found {
  readonly definition: EngineDefinition;
  readonly engine: OperatedEngine | null;
}

/** @throws AppError not_found */
export function findEngine(operations: EngineOperations, id: string): Found {
  const definition = operations.definitions().find((one) => one.id === id);
  if (definition === undefined) throw new AppError('not_found', { message: 'There is no such engine.' });
  return { definition, engine: operations.list().find(({ engineId }) => engineId === id) ?? null };
}

/** Returns the caller for the audit log of a command. */
export function commandAuthor(context: HttpContext): CommandAuthor {
  return { organizationId: context.get('caller').organizationId, author: authorOf(context) };
}
