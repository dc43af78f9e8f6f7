export { assets, registerAssets } from './assets.ts';
export { openPage, page } from './layout.ts';
export { localPath, signInPath } from './local-path.ts';
export { switchOrganization } from './organization-switch.ts';
export { otherOrganization } from './other-organization.ts';
export { readKeys, readOnward, readPages } from './read-pages.ts';
export { statusOf } from './refusal-status.ts';
export { only } from './rights.ts';
export { changeView, isOfOtherPage, requireSameView, viewButtons } from './viewed-organization.ts';
export {
  begin,
  clientOf,
  endSession,
  handOver,
  isPart,
  loadedAgain,
  ownVisitOf,
  requireSafe,
  toSignIn,
  visitOf,
  visitorOf,
} from './visitors.ts';
