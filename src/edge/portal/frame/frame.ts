export { actorNames, actorOf, strangerNames } from './actors.ts';
export { assets, registerAssets } from './assets.ts';
export { openPage, page, placesOf, statusOf } from './layout.ts';
export { localPath, signInPath } from './local-path.ts';
export { switchOrganization } from './organization-switch.ts';
export { readKeys, readOnward, readPages } from './read-pages.ts';
export { only } from './rights.ts';
export { changeView, isOfOtherPage, otherOrganization, requireSameView, viewButtons } from './viewed-organization.ts';
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
