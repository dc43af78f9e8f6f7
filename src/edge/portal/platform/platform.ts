import { only } from '#edge/portal/frame/frame.ts';
import type { Change, Page, Upload } from '#edge/portal/ui/ui.ts';
import { allocationsPage, changeAllocation } from './allocations-page.ts';
import { applyPage, applyStack } from './apply-page.ts';
import {
  changeCluster,
  createCluster,
  deleteCluster,
  deleteClusterPage,
  editClusterPage,
  newClusterPage,
  rotateKey,
  rotatePage,
} from './cluster-forms.ts';
import { clustersPage } from './cluster-list.ts';
import { clusterPage } from './cluster-page.ts';
import { costSeriesPage } from './cost-series-page.ts';
import { changeBudget, changeCurrency, costsCsv, costsPage } from './costs-page.ts';
import { marginsPage } from './margins-page.ts';
import {
  addNode,
  changeNode,
  editNodePage,
  newNodePage,
  recordEvent,
  removeNode,
  removeNodePage,
} from './node-forms.ts';
import { addRate, endRate, importRates, ratesPage } from './rates-page.ts';
import {
  cancelRun,
  checkDrift,
  changeExpiry,
  decideRun,
  destroyPage,
  destroyRun,
  expiryPage,
  forgetPage,
  forgetRun,
  openRun,
  retryRun,
} from './run-changes.ts';
import { runsPage } from './run-list.ts';
import { followRunLog } from './run-log.ts';
import { runPage } from './run-page.ts';
import { downloadStack, iconOfStack } from './stack-files.ts';
import { changeStack, deleteStack, deleteStackPage, editStackPage, newStackPage, uploadStack } from './stack-forms.ts';
import { stacksPage } from './stack-list.ts';
import { stackPage } from './stack-page.ts';
import { diffPage, revertPage, revertStack } from './stack-versions.ts';

/** Pages of the platform: stacks, runs, clusters and costs. */

export const platformPages: Readonly<Record<string, Page>> = {
  '/portal/stacks': stacksPage,
  '/portal/stacks/new': only('stacks', (visit) => newStackPage(visit), 'mayOwn'),
  '/portal/stacks/:name': (visit, _, param) => stackPage(visit, param('name')),
  '/portal/stacks/:name/edit': only('stacks', (visit, _, param) => editStackPage(visit, param('name')), 'mayOwn'),
  '/portal/stacks/:name/delete': only('stacks', (visit, _, param) => deleteStackPage(visit, param('name')), 'mayOwn'),
  '/portal/stacks/:name/apply': only('runs', (visit, _, param) => applyPage(visit, param('name'))),
  '/portal/stacks/:name/diff': (visit, _, param) => diffPage(visit, param('name')),
  '/portal/stacks/:name/revert': only('stacks', (visit, _, param) => revertPage(visit, param('name')), 'mayOwn'),
  '/portal/stacks/:name/download': (visit, _, param) => downloadStack(visit, param('name')),
  '/portal/stacks/:name/icon': (visit, _, param) => iconOfStack(visit, param('name')),
  '/portal/runs': runsPage,
  '/portal/runs/:id': (visit, _, param) => runPage(visit, param('id')),
  '/portal/runs/:id/log': (visit, _, param) => followRunLog(visit, param('id')),
  '/portal/runs/:id/destroy': only('runs', (visit, _, param) => destroyPage(visit, param('id'))),
  '/portal/runs/:id/expiry': only('runs', (visit, _, param) => expiryPage(visit, param('id'))),
  '/portal/runs/:id/forget': only('runs.forget', (visit, _, param) => forgetPage(visit, param('id'))),
  '/portal/clusters': clustersPage,
  '/portal/clusters/new': (visit) => newClusterPage(visit),
  '/portal/clusters/:id': (visit, { clock }, param) => clusterPage(visit, clock.now(), param('id')),
  '/portal/clusters/:id/allocations': (visit, _, param) => allocationsPage(visit, param('id')),
  '/portal/clusters/:id/edit': (visit, _, param) => editClusterPage(visit, param('id')),
  '/portal/clusters/:id/delete': (visit, _, param) => deleteClusterPage(visit, param('id')),
  '/portal/clusters/:id/rotate': (visit, _, param) => rotatePage(visit, param('id')),
  '/portal/clusters/:id/nodes/new': (visit, _, param) => newNodePage(visit, param('id')),
  '/portal/clusters/:id/nodes/:node/edit': (visit, _, param) => editNodePage(visit, param('id'), param('node')),
  '/portal/clusters/:id/nodes/:node/delete': (visit, _, param) => removeNodePage(visit, param('id'), param('node')),
  '/portal/costs': (visit, { clock }) => costsPage(visit, clock.now()),
  '/portal/costs.csv': (visit, { clock }) => costsCsv(visit, clock.now()),
  '/portal/costs/series': (visit, { clock }) => costSeriesPage(visit, clock.now()),
  '/portal/costs/rates': (visit, { clock }) => ratesPage(visit, clock.now()),
  '/portal/costs/margins': (visit, { clock }) => marginsPage(visit, clock.now()),
};

export const platformChanges: Readonly<Record<string, Change>> = {
  '/portal/stacks/:name': (visit, _, form, param) => changeStack(visit, param('name'), form),
  '/portal/stacks/:name/delete': (visit, _parts, _form, param) => deleteStack(visit, param('name')),
  '/portal/stacks/:name/revert': (visit, _, form, param) => revertStack(visit, param('name'), form),
  '/portal/stacks/:name/apply': (visit, _, form, param) => applyStack(visit, param('name'), form),
  '/portal/runs/:id/cancel': (visit, _parts, _form, param) => cancelRun(visit, param('id')),
  '/portal/runs/:id/confirm': (visit, _parts, _form, param) => decideRun(visit, param('id'), 'confirm'),
  '/portal/runs/:id/discard': (visit, _parts, _form, param) => decideRun(visit, param('id'), 'discard'),
  '/portal/runs/:id/expiry': (visit, { clock }, form, param) => changeExpiry(visit, param('id'), clock.now(), form),
  '/portal/runs/:id/drift-check': (visit, _, form, param) => checkDrift(visit, param('id'), form),
  '/portal/runs/:id/retry': (visit, _, form, param) => retryRun(visit, param('id'), form),
  '/portal/runs/:id/open': (visit, _parts, _form, param) => openRun(visit, param('id')),
  '/portal/runs/:id/destroy': (visit, _, form, param) => destroyRun(visit, param('id'), form),
  '/portal/runs/:id/forget': (visit, _parts, _form, param) => forgetRun(visit, param('id')),
  '/portal/clusters': (visit, _, form) => createCluster(visit, form),
  '/portal/clusters/:id': (visit, _, form, param) => changeCluster(visit, param('id'), form),
  '/portal/clusters/:id/delete': (visit, _parts, _form, param) => deleteCluster(visit, param('id')),
  '/portal/clusters/:id/rotate': (visit, _parts, _form, param) => rotateKey(visit, param('id')),
  '/portal/clusters/:id/nodes': (visit, _, form, param) => addNode(visit, param('id'), form),
  '/portal/clusters/:id/nodes/:node': (visit, _, form, param) => changeNode(visit, param('id'), param('node'), form),
  '/portal/clusters/:id/nodes/:node/delete': (visit, _parts, _form, param) =>
    removeNode(visit, param('id'), param('node')),
  '/portal/clusters/:id/nodes/:node/allocate': (visit, { clock }, form, param) =>
    recordEvent(visit, { kind: 'allocate', id: param('id'), nodeId: param('node'), nowMs: clock.now() }, form),
  '/portal/clusters/:id/nodes/:node/release': (visit, { clock }, form, param) =>
    recordEvent(visit, { kind: 'release', id: param('id'), nodeId: param('node'), nowMs: clock.now() }, form),
  '/portal/clusters/:id/nodes/:node/allocations/:generation': (visit, _, form, param) =>
    changeAllocation(visit, { id: param('id'), nodeId: param('node'), generation: param('generation') }, form),
  '/portal/costs/budget': (visit, { clock }, form) => changeBudget(visit, clock.now(), form),
  '/portal/costs/currency': (visit, { clock }, form) => changeCurrency(visit, clock.now(), form),
  '/portal/costs/rates/cards': (visit, { clock }, form) => addRate(visit, clock.now(), 'cards', form),
  '/portal/costs/rates/conversions': (visit, { clock }, form) => addRate(visit, clock.now(), 'conversions', form),
  '/portal/costs/rates/import': (visit, { clock }, form) => importRates(visit, clock.now(), form),
  '/portal/costs/rates/:id/end': (visit, { clock }, form, param) => endRate(visit, clock.now(), param('id'), form),
};

export const platformUploads: Readonly<Record<string, Upload>> = {
  '/portal/stacks': uploadStack,
};
