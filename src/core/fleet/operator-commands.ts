import type { Db, Transaction } from '#base/database/database.ts';
import type { Audit, AuditEntry } from '#core/audit/audit.ts';
import type { EngineReloadResult } from '#core/catalog/catalog.ts';
import type { EngineCommand } from '#core/fleet/store/store.ts';

/** The person who gives a command, and the organization whose audit log shows it. */
export type CommandAuthor = Pick<AuditEntry, 'organizationId' | 'author'>;

/** Operators' changes of engines, each with its row in the audit log. */
export interface OperatorCommands {
  /**
   * Resolves once every gateway applies the command, or after five seconds. Rejects, and leaves no trace, if the engine
   * is unknown or disabled, or the command cannot be written.
   */
  command(engineId: string, kind: EngineCommand, by: CommandAuthor): Promise<void>;
  /**
   * Records that a request for a model of the engine is canceled. Whose request it was stands in the row, because an
   * operator sees all organizations.
   */
  cancelRequest(engineId: string, request: CanceledRequest, by: CommandAuthor): Promise<void>;
  /** Reloads the engine files. With any problem nothing changes, and no row is written. */
  reload(by: CommandAuthor): Promise<EngineReloadResult>;
}

/** A running request, as the audit log shows it. */
export type CanceledRequest = Readonly<Record<'id' | 'organization_id' | 'model' | 'state', string>>;

export interface OperatorCommandsOptions {
  readonly db: Pick<Db, 'orm'>;
  readonly audit: Audit;
  readonly fleet: {
    list(): readonly { readonly engineId: string; readonly phase: string }[];
    command(engineId: string, kind: EngineCommand, tx?: Transaction): Promise<() => Promise<void>>;
  };
  /** Reloads on this gateway and on the others. */
  readonly reload: () => Promise<EngineReloadResult>;
}

export function createOperatorCommands({ db, audit, fleet, reload }: OperatorCommandsOptions): OperatorCommands {
  return {
    async command(engineId, kind, by) {
      const engine = fleet.list().find((one) => one.engineId === engineId);
      if (engine === undefined) throw new Error(`There is no enabled engine ${JSON.stringify(engineId)}.`);
      // One transaction: the command and its audit row are written together or not at all.
      const committed = await db.orm.transaction(async (tx) => {
        await audit.record(tx, {
          ...by,
          action: `engine.${kind}_ordered`,
          targetType: 'engine',
          targetId: engineId,
          before: { state: engine.phase },
          after: { ordered: kind },
        });
        return fleet.command(engineId, kind, tx);
      });
      await committed();
    },
    async cancelRequest(engineId, { id, organization_id, model, state }, by) {
      const target = { action: 'engine.request_canceled', targetType: 'engine', targetId: engineId };
      const before = { request_id: id, organization_id, model, state };
      await db.orm.transaction((tx) => audit.record(tx, { ...by, ...target, before, after: null }));
    },
    async reload(by) {
      const result = await reload();
      if (!result.ok) return result;
      const { added, changed, removed } = result;
      const after = Object.fromEntries(
        Object.entries({ added, changed, removed }).map(([name, ids]) => [name, ids.join(' ')]),
      );
      const target = { action: 'engines.reloaded', targetType: 'engines', targetId: 'engines' };
      await db.orm.transaction((tx) => audit.record(tx, { ...by, ...target, before: null, after }));
      return result;
    },
  };
}
