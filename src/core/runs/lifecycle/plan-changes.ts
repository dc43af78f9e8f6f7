import { z } from 'zod';
import { createMask, masked, type Mask } from './mask.ts';
import { shownText } from './outputs.ts';
import { textsIn } from './shown-inputs.ts';

/** Maximum length of a shown plan as JSON; further values and resources are not shown. */
const planCharsMax = 524_288;
/** Maximum number of resources that are shown. */
const resourcesMax = 2000;
/** Maximum number of different values that Terraform marks as sensitive; with more of them, no value is shown. */
const markedMax = 500;

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
const absent = z.unknown().optional();
const marksSchema = { before_sensitive: absent, after_sensitive: absent };
const changeSchema = z.object({
  address: z.string(),
  change: z.object({
    actions: z.array(z.string()),
    before: attributes,
    after: attributes,
    /** True, or an object with the positions that are. */
    after_unknown: absent,
    ...marksSchema,
  }),
});
const outputSchema = z.object({ before: absent, after: absent, ...marksSchema });
const stateSchema = z.object({
  outputs: z.record(z.string(), z.object({ sensitive: absent, value: absent })).default({}),
  root_module: absent,
});
const moduleSchema = z
  .object({
    resources: z.array(z.object({ values: absent, sensitive_values: absent })).default([]),
    child_modules: z.array(z.unknown()).default([]),
  })
  .catch({ resources: [], child_modules: [] });
const planSchema = z.object({
  /** The state before the plan. */
  prior_state: z.object({ values: stateSchema.optional() }).optional(),
  resource_changes: z.array(changeSchema).default([]),
  /** Resources that differ from the state, before the plan. */
  resource_drift: z.array(changeSchema).default([]),
  output_changes: z.record(z.string(), outputSchema).default({}),
});
type Change = z.infer<typeof changeSchema>['change'];
type Plan = z.infer<typeof planSchema>;

/**
 * Reads `terraform show -json` of a saved plan (format 1.x): the resources that the plan changes, without values that
 * Terraform marks as sensitive and without the secrets of the run. A marked value is hidden wherever the plan has it:
 * what a provider copies, such as the output of a `terraform_data`, has lost its mark.
 * @param secrets values that nobody may see
 */
export function readPlanChanges(text: string, secrets: readonly string[]): PlanChanges {
  const plan = planSchema.safeParse(parse(text)).data;
  if (plan === undefined) return { resources: [], isTruncated: true };
  return shownChanges(plan, plan.resource_changes, secrets);
}

/** The result of a drift check: resources that differ from the stored state. */
export interface PlanDrift extends PlanChanges {
  /** Number of resources that were changed; complete, also where not all of them are shown. */
  readonly changed: number;
  /** Number of resources that no longer exist. */
  readonly deleted: number;
}

/**
 * Reads the drift from `terraform show -json` of a plan that was made with `-refresh-only`, as `readPlanChanges`.
 * @returns null if the text is no plan
 */
export function readPlanDrift(text: string, secrets: readonly string[]): PlanDrift | null {
  const plan = planSchema.safeParse(parse(text)).data;
  if (plan === undefined) return null;
  const actions = plan.resource_drift.map(({ change }) => actionOf(change.actions)).filter((action) => action !== null);
  const deleted = actions.filter((action) => action === 'delete').length;
  return { ...shownChanges(plan, plan.resource_drift, secrets), changed: actions.length - deleted, deleted };
}

/** Shows some of the changes of a plan, without what is marked as sensitive anywhere in the plan. */
function shownChanges(plan: Plan, changes: Plan['resource_changes'], secrets: readonly string[]): PlanChanges {
  const all = [...plan.resource_changes, ...plan.resource_drift].map(({ change }) => change);
  const marked = markedTexts([...all, ...Object.values(plan.output_changes), ...markedInState(plan)]);
  const isHidden = marked.size > markedMax;
  const mask = createMask(isHidden ? secrets : [...secrets, ...marked]);
  const resources: PlannedResource[] = [];
  let chars = 0;
  for (const { address, change } of changes) {
    const action = actionOf(change.actions);
    if (action === null) continue;
    if (resources.length >= resourcesMax) return { resources, isTruncated: true };
    const shown = { address: mask(address), action, attributes: isHidden ? [] : changedAttributes(change, mask) };
    chars += JSON.stringify(shown).length;
    if (chars > planCharsMax) return { resources, isTruncated: true };
    resources.push(shown);
  }
  return { resources, isTruncated: isHidden };
}

function actionOf(actions: readonly string[]): PlanAction | null {
  if (actions.length === 2) return 'replace';
  return planActions.find((action) => action === actions[0]) ?? null;
}

/** Returns the values of the state: a plan with `-refresh-only` names only the resources that differ. */
function markedInState({ prior_state: { values } = {} }: Plan): z.infer<typeof outputSchema>[] {
  const ofModule = (module: unknown): z.infer<typeof outputSchema>[] => {
    const { resources, child_modules: children } = moduleSchema.parse(module);
    const own = resources.map((one) => ({ before: one.values, before_sensitive: one.sensitive_values }));
    return [...own, ...children.flatMap(ofModule)];
  };
  const outputs = Object.values(values?.outputs ?? {});
  return [
    ...ofModule(values?.root_module),
    ...outputs.map(({ sensitive, value }) => ({ before: value, before_sensitive: sensitive })),
  ];
}

/** Returns the texts at the positions that Terraform marks as sensitive. */
function markedTexts(changes: readonly z.infer<typeof outputSchema>[]): ReadonlySet<string> {
  const found = new Set<string>();
  const collect = (value: unknown, marks: unknown): void => {
    if (marks === true) for (const text of textsIn(value)) found.add(text);
    else if (typeof marks === 'object' && marks !== null && typeof value === 'object' && value !== null)
      for (const [name, mark] of Object.entries(marks)) collect((value as Record<string, unknown>)[name], mark);
  };
  for (const change of changes) {
    collect(change.before, change.before_sensitive);
    collect(change.after, change.after_sensitive);
  }
  return found;
}

function changedAttributes(change: Change, mask: Mask): PlannedAttribute[] {
  const [before, after] = [change.before ?? {}, change.after ?? {}];
  const at = (value: unknown, name: string): unknown =>
    typeof value === 'object' && value !== null && Object.hasOwn(value, name)
      ? (value as Record<string, unknown>)[name]
      : value === true;
  const show = (value: unknown, marks: unknown): unknown => {
    const text = shownText(withoutSensitive(value, marks), mask);
    return text === null ? undefined : parse(text);
  };
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
