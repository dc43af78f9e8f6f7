/**
 * Decides on the limits of keys, and of models in projects, with pure functions: from the usage and a request's needs
 * to yes, or to the limit that rejects it and until when. Admission stores the usage, in memory or in Redis; both use
 * the same rules.
 */
export {
  countAdmitted,
  divideLimits,
  divideUse,
  type KeyLimits,
  type KeyUse,
  type LimitCode,
  type LimitRefusal,
  type LimitsView,
  type LimitView,
  monthStartMs,
  nextMonthMs,
  refuseByLimits,
  reserve,
  rollWindow,
  shiftRefusal,
  shiftView,
  unusedKey,
  viewLimits,
  windowMs,
} from './key-limits.ts';
export {
  countOfModel,
  dayStartMs,
  divideModelLimits,
  divideModelUse,
  type ModelLimitName,
  type ModelLimits,
  type ModelRefusal,
  type ModelUse,
  type ModelView,
  nextDayMs,
  refuseByModel,
  rollModel,
  tighterView,
  unusedModel,
  viewModel,
} from './model-limits.ts';
