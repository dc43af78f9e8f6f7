export { limitFields, limitTexts } from './key-form.ts';
export { changeKey, createKey, deleteKey, deletePage, keyPage, newKeyPage } from './key-pages.ts';
export { rotateKey, rotateKeyPage } from './key-rotation.ts';
export { keysPage, readOrganization } from './keys-page.ts';
export {
  createServiceAccount,
  deleteServiceAccount,
  deleteServiceAccountPage,
  newServiceAccountPage,
  serviceAccountSection,
} from './service-accounts.ts';
