import type { Db, Transaction } from '#base/db.ts';
import type { Audit, AuditEntry } from '#core/audit/audit.ts';
import type { EngineReloadResult } from '#core/catalog/catalog.ts';
import type { EngineCommand } from '#core/fleet/store/store.ts';

/** On whose behalf a command is given: whose organization's audit shows it, and who gave it. */
export type CommandAuthor = Pick<AuditEntry, 'organizationId' | 'author'>;

/** What operators change about engines, each with its row in the audit log. */
export interface OperatorCommands {
  /**
   * Resolves when every gateway goes by the command, or after five seconds when nobody carries it out. Rejects, and
   * leaves no trace, for an engine that is not known or not enabled, and when the command cannot be written.
   */
  command(engineId: string, kind: EngineCommand, by: CommandAuthor): Promise<void>;
  /** Reads the engine files again. With any problem everything stays as it was, and there is no row. */
  reload(by: CommandAuthor): Promise<EngineReloadResult>;
}

export interface OperatorCommandsOptions {
  readonly db: Pick<Db, 'orm'>;
  readonly audit: Audit;
  readonly fleet: {
    list(): readonly { readonly engineId: string; readonly phase: string }[];
    command(engineId: string, kind: EngineCommand, tx?: Transaction): Promise<() => Promise<void>>;
  };
  /** Here and on the other gateways. */
  readonly reload: () => Promise<EngineReloadResult>;
}

export function createOperatorCommands({ db, audit, fleet, reload }: OperatorCommandsOptions): OperatorCommands {
  return {
    async command(engineId, kind, by) {
      const engine = fleet.list().find((one) => one.engineId === engineId);
      if (engine === undefined) throw new Error(`There is no enabled engine ${JSON.stringify(engineId)}.`);
      // Both in one transaction: a command that is not in the audit log was not given, and the reverse.
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
