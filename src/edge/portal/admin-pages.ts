import { auditPage } from './audit-page.ts';
import { commandEngine, confirmPage, engineLog, enginePage } from './engine-page.ts';
import { enginesPage, reloadEngines } from './engines-page.ts';
import type { Change, Page } from './parts.ts';
import {
  changeOrganization,
  closeOrganization,
  endOrganizationPage,
  organizationPage,
  setStatus,
} from './organization-page.ts';
import { createOrganization, newOrganizationPage, organizationsPage } from './organizations-page.ts';
import { ownOrganizationPage, changeOwnOrganization } from './own-organization-page.ts';
import {
  archivePage,
  archiveProject,
  changeProject,
  createProject,
  newProjectPage,
  projectPage,
  projectsPage,
} from './projects-page.ts';
import { changeRateLimit, rateLimitPage } from './rate-limits.ts';
import { only } from './rights.ts';
import {
  createServiceAccount,
  deleteServiceAccount,
  deleteServiceAccountPage,
  newServiceAccountPage,
} from './service-accounts.ts';
import {
  changeWebhook,
  deleteWebhook,
  deleteWebhookPage,
  replayDelivery,
  rotateWebhook,
  rotateWebhookPage,
  switchWebhook,
  testWebhook,
  webhookPageOf,
} from './webhook-page.ts';
import { changeAlertMails, createWebhook, newWebhookPage, webhooksPage } from './webhooks-page.ts';
import { changeUser, createUser, newUserPage, removeUser, removeUserPage, userPage, usersPage } from './users-page.ts';

/** Pages for administrators of an organization or of the platform. */

export const adminPages: Readonly<Record<string, Page>> = {
  '/portal/projects': (visit) => projectsPage(visit),
  '/portal/projects/new': only('projects', (visit) => newProjectPage(visit)),
  '/portal/projects/:id': (visit, _, param) => projectPage(visit, param('id')),
  '/portal/projects/:id/archive': only('projects', (visit, _, param) => archivePage(visit, param('id'))),
  '/portal/projects/:id/limits': only('keys', (visit, _, param) => rateLimitPage(visit, param('id'))),
  '/portal/projects/:id/service-accounts/new': only('service_accounts', (visit, _, param) =>
    newServiceAccountPage(visit, param('id')),
  ),
  '/portal/projects/:id/service-accounts/:account/delete': only('service_accounts', (visit, _, param) =>
    deleteServiceAccountPage(visit, param('id'), param('account')),
  ),
  '/portal/users': (visit) => usersPage(visit),
  '/portal/users/new': only('users.manage', (visit) => newUserPage(visit)),
  '/portal/users/:id': (visit, _, param) => userPage(visit, param('id')),
  '/portal/users/:id/remove': only('users.manage', (visit, _, param) => removeUserPage(visit, param('id'))),
  '/portal/organization': ownOrganizationPage,
  '/portal/webhooks': only('webhooks', (visit, parts) => webhooksPage(visit, parts)),
  '/portal/webhooks/new': only('webhooks', (visit) => newWebhookPage(visit)),
  '/portal/webhooks/:id': only('webhooks', (visit, _, param) => webhookPageOf(visit, param('id'))),
  '/portal/webhooks/:id/rotate': only('webhooks', (visit, _, param) => rotateWebhookPage(visit, param('id'))),
  '/portal/webhooks/:id/delete': only('webhooks', (visit, _, param) => deleteWebhookPage(visit, param('id'))),
  '/portal/audit': (visit) => auditPage(visit),
  '/portal/engines': (visit) => enginesPage(visit),
  '/portal/engines/:id': (visit, parts, param) => enginePage(visit, parts, param('id')),
  '/portal/engines/:id/log': (visit, _, param) => engineLog(visit, param('id')),
  '/portal/engines/:id/stop': (visit, _, param) => confirmPage(visit, param('id'), 'stop'),
  '/portal/engines/:id/restart': (visit, _, param) => confirmPage(visit, param('id'), 'restart'),
  '/portal/organizations': (visit) => organizationsPage(visit),
  '/portal/organizations/new': only('organizations', (visit) => newOrganizationPage(visit)),
  '/portal/organizations/:id': (visit, parts, param) => organizationPage(visit, parts, param('id')),
  '/portal/organizations/:id/suspend': (visit, _, param) => endOrganizationPage(visit, param('id'), 'suspend'),
  '/portal/organizations/:id/close': (visit, _, param) => endOrganizationPage(visit, param('id'), 'close'),
};

export const adminChanges: Readonly<Record<string, Change>> = {
  '/portal/projects': (visit, _, form) => createProject(visit, form),
  '/portal/projects/:id': (visit, _, form, param) => changeProject(visit, param('id'), form),
  '/portal/projects/:id/archive': (visit, _, form, param) => archiveProject(visit, param('id'), form),
  '/portal/projects/:id/limits': (visit, _, form, param) => changeRateLimit(visit, param('id'), form),
  '/portal/projects/:id/service-accounts': (visit, parts, form, param) =>
    createServiceAccount(visit, parts, param('id'), form),
  '/portal/projects/:id/service-accounts/:account/delete': (visit, _parts, _form, param) =>
    deleteServiceAccount(visit, param('id'), param('account')),
  '/portal/users': (visit, _, form) => createUser(visit, form),
  '/portal/users/:id': (visit, _, form, param) => changeUser(visit, param('id'), form),
  '/portal/users/:id/remove': (visit, _, form, param) => removeUser(visit, param('id'), form),
  '/portal/organization': changeOwnOrganization,
  '/portal/webhooks': (visit, _, form) => createWebhook(visit, form),
  '/portal/webhooks/mail': (visit, _, form) => changeAlertMails(visit, form),
  '/portal/webhooks/:id': (visit, _, form, param) => changeWebhook(visit, param('id'), form),
  '/portal/webhooks/:id/test': (visit, _parts, _form, param) => testWebhook(visit, param('id')),
  '/portal/webhooks/:id/on': (visit, _parts, _form, param) => switchWebhook(visit, param('id'), true),
  '/portal/webhooks/:id/off': (visit, _parts, _form, param) => switchWebhook(visit, param('id'), false),
  '/portal/webhooks/:id/rotate': (visit, _, form, param) => rotateWebhook(visit, param('id'), form),
  '/portal/webhooks/:id/delete': (visit, _parts, _form, param) => deleteWebhook(visit, param('id')),
  '/portal/webhooks/:id/deliveries/:delivery/replay': (visit, _parts, _form, param) =>
    replayDelivery(visit, param('id'), param('delivery')),
  '/portal/engines-reload': (visit, _, form) => reloadEngines(visit, form),
  '/portal/engines/:id/start': (visit, _parts, _form, param) => commandEngine(visit, param('id'), 'start'),
  '/portal/engines/:id/stop': (visit, _parts, _form, param) => commandEngine(visit, param('id'), 'stop'),
  '/portal/engines/:id/restart': (visit, _parts, _form, param) => commandEngine(visit, param('id'), 'restart'),
  '/portal/engines/:id/reset': (visit, _parts, _form, param) => commandEngine(visit, param('id'), 'reset'),
  '/portal/organizations': (visit, _, form) => createOrganization(visit, form),
  '/portal/organizations/:id': (visit, parts, form, param) => changeOrganization(visit, parts, param('id'), form),
  '/portal/organizations/:id/status': (visit, parts, form, param) => setStatus(visit, parts, param('id'), form),
  '/portal/organizations/:id/close': (visit, parts, _, param) => closeOrganization(visit, parts, param('id')),
};
