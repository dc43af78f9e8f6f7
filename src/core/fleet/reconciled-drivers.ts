import type { EngineDefinition } from '#core/catalog/catalog.ts';
import type { DriverType, EngineDriver, EngineSpec } from '#core/fleet/drivers/drivers.ts';
import type { Reconciler } from './reconciler.ts';

/** A reconciler with the drivers of its engines. */
export interface ReconciledDrivers {
  readonly name: 'machine' | 'shared';
  readonly drivers: ReadonlyMap<DriverType, EngineDriver>;
  readonly reconciler: Reconciler;
}

/**
 * Returns the specs of the enabled engines, by the reconciler that runs them.
 * @throws if an engine needs a driver that this gateway does not have
 */
export function specsByReconciler(
  all: readonly ReconciledDrivers[],
  engines: readonly EngineDefinition[],
): ReadonlyMap<Reconciler, readonly EngineSpec[]> {
  const specs = new Map<Reconciler, EngineSpec[]>(all.map(({ reconciler }) => [reconciler, []]));
  for (const definition of engines.filter(({ enabled }) => enabled)) {
    const { type } = definition.driver;
    const found = all.find(({ drivers }) => drivers.has(type));
    const driver = found?.drivers.get(type);
    if (found === undefined || driver === undefined) {
      throw new Error(`${definition.file}: this gateway does not support the driver ${type}.`);
    }
    specs.get(found.reconciler)?.push(driver.specOf(definition));
  }
  return specs;
}
