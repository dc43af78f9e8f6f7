import { z } from 'zod';
import { masked, type Mask } from './mask.ts';
import { shownText } from './outputs.ts';

/** Maximum length of the shown values of a plan as JSON; further values are not shown. */
const valuesCharsMax = 262_144;
/** Maximum number of resources that are shown. */
const resourcesMax = 2000;

/** Effect of a plan on a resource. `replace`: the resource is removed and created again. */
const planActions = ['create', 'update', 'replace', 'delete', 'read', 'forget'] as const;
export type PlanAction = (typeof planActions)[number];

/** A changed attribute. A value is absent if it is sensitive, unknown before the apply, or too large. */
export interface PlannedAttribute {
  readonly name: string;
  readonly sensitive: boolean;
  /** True if Terraform knows the new value only after the apply. */
  readonly unknown: boolean;
  readonly before?: unknown;
  readonly after?: unknown;
}

export interface PlannedResource {
  /** Terraform's address, such as `module.queue.terraform_data.worker[0]`. */
  readonly address: string;
  readonly action: PlanAction;
  readonly attributes: readonly PlannedAttribute[];
}

export interface PlanChanges {
  readonly resources: readonly PlannedResource[];
  /** True if resources or values are left out, because the plan is too large to show. */
  readonly isTruncated: boolean;
}

const attributes = z.record(z.string(), z.unknown()).nullish().catch(null);
const changeSchema = z.object({
  address: z.string(),
  change: z.object({
    actions: z.array(z.string()),
    before: attributes,
    after: attributes,
    /** True, or an object with the positions that are. */
    after_unknown: z.unknown(),
    before_sensitive: z.unknown(),
    after_sensitive: z.unknown(),
  }),
});
const planSchema = z.object({ resource_changes: z.array(changeSchema).default([]) });

/**
 * Reads `terraform show -json` of a saved plan (format 1.x): the resources that the plan changes, without values that
 * Terraform marks as sensitive and without the secrets of the run.
 */
export function readPlanChanges(text: string, mask: Mask): PlanChanges {
  const parsed = planSchema.safeParse(parse(text));
  if (!parsed.success) return { resources: [], isTruncated: true };
  const show = createShow(mask);
  const changed = parsed.data.resource_changes.flatMap(({ address, change }): PlannedResource[] => {
    const action = actionOf(change.actions);
    return action === null ? [] : [{ address: mask(address), action, attributes: changedAttributes(change, show) }];
  });
  const isTruncated = changed.length > resourcesMax || show.isFull();
  return { resources: changed.slice(0, resourcesMax), isTruncated };
}

function actionOf(actions: readonly string[]): PlanAction | null {
  if (actions.length === 2) return 'replace';
  return planActions.find((action) => action === actions[0]) ?? null;
}

interface Show {
  /** Returns the value without secrets; undefined if it is not shown. */
  (value: unknown, sensitive: unknown): unknown;
  isFull(): boolean;
}

function createShow(mask: Mask): Show {
  let chars = 0;
  let isFull = false;
  const show = (value: unknown, sensitive: unknown): unknown => {
    const text = shownText(withoutSensitive(value, sensitive), mask);
    chars += text?.length ?? 0;
    if (text !== null && chars <= valuesCharsMax) return parse(text);
    isFull = true;
    return undefined;
  };
  return Object.assign(show, { isFull: () => isFull });
}

type Change = z.infer<typeof changeSchema>['change'];

function changedAttributes(change: Change, show: Show): PlannedAttribute[] {
  const [before, after] = [change.before ?? {}, change.after ?? {}];
  const at = (value: unknown, name: string): unknown =>
    typeof value === 'object' && value !== null && Object.hasOwn(value, name)
      ? (value as Record<string, unknown>)[name]
      : value === true;
  const names = new Set([...Object.keys(before), ...Object.keys(after), ...namesIn(change.after_unknown)]);
  return [...names].toSorted().flatMap((name): PlannedAttribute[] => {
    const unknown = isAny(at(change.after_unknown, name));
    const [old, fresh] = [before[name] ?? null, after[name] ?? null];
    if (!unknown && JSON.stringify(old) === JSON.stringify(fresh)) return [];
    const hidden = [at(change.before_sensitive, name), at(change.after_sensitive, name)];
    const values = {
      ...(old !== null && hidden[0] !== true && { before: show(old, hidden[0]) }),
      ...(fresh !== null && hidden[1] !== true && { after: show(fresh, hidden[1]) }),
    };
    return [{ name, sensitive: hidden.some(isAny), unknown, ...values }];
  });
}

const namesIn = (value: unknown): string[] => (typeof value === 'object' && value !== null ? Object.keys(value) : []);

/** True if a value of `after_unknown` or `…_sensitive` marks anything: it is true, or contains true. */
function isAny(marks: unknown): boolean {
  if (typeof marks !== 'object' || marks === null) return marks === true;
  return Object.values(marks).some(isAny);
}

/** Replaces the positions that `marks` has as true. */
function withoutSensitive(value: unknown, marks: unknown): unknown {
  if (marks === true) return masked;
  if (typeof marks !== 'object' || marks === null || typeof value !== 'object' || value === null) return value;
  const known = marks as Record<string, unknown>;
  if (Array.isArray(value)) return value.map((one, index) => withoutSensitive(one, known[index]));
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, withoutSensitive(one, known[name])]));
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
