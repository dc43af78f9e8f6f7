export { accountPage, changeAccount, removeIdentity } from './account-page.ts';
export { auditPage } from './audit-page.ts';
export { sentenceOf } from './audit-words.ts';
export { invitationsPage, invite, makeResetLink, revokeInvitation } from './invitations-page.ts';
export {
  changeOrganization,
  closeOrganization,
  endOrganizationPage,
  organizationPage,
  setStatus,
} from './organization-page.ts';
export { createOrganization, newOrganizationPage, organizationsPage } from './organizations-page.ts';
export { changeOwnOrganization, ownOrganizationPage } from './own-organization-page.ts';
export {
  archivePage,
  archiveProject,
  changeProject,
  createProject,
  newProjectPage,
  projectPage,
  projectsPage,
} from './projects-page.ts';
export { endSessions, sessionsPage } from './sessions-page.ts';
export { changeUser, createUser, newUserPage, removeUser, removeUserPage, userPage, usersPage } from './users-page.ts';
