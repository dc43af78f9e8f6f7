import { created, exampleId, openaiList } from './examples.ts';
import type { Tag } from './operation.ts';

export const budget = {
  object: 'budget',
  id: exampleId('budget'),
  scope: { type: 'project', id: exampleId('proj') },
  period: 'monthly',
  mode: 'hard',
  amount: '25',
  alert_percents: [80, 100],
  spent: '12.5',
  held: '0.5',
  remaining: '12',
  period_start: created,
  resets_at: created + 2_592_000,
  created_at: created,
};

const who = 'Requires a management key of the organization.';
const sees = 'Members see budgets of their own keys and projects, a management key all of its organization.';

export const budgets: Tag = {
  name: 'Budgets',
  description:
    'Spending limits in USD of projects, API keys and end users, for each UTC day or month. A `hard` budget rejects ' +
    'requests that would exceed it, a `soft` one only sends alerts.',
  operations: {
    'GET /v1/budgets': {
      operationId: 'listBudgets',
      summary: 'List budgets',
      description: `Returns budgets with their spending in the current period, newest first. ${sees}`,
      answer: openaiList(budget),
    },
    'POST /v1/budgets': {
      operationId: 'createBudget',
      summary: 'Create a budget',
      description:
        'Creates a budget; all gateways enforce it once this returns. An organization has at most one budget for each ' +
        `scope, period and mode, and 1,000 in total. ${who}`,
      request: { scope: budget.scope, period: 'monthly', amount: '25', mode: 'hard' },
      answer: { ...budget, spent: '0', held: '0', remaining: '25' },
    },
    'GET /v1/budgets/{id}': {
      operationId: 'retrieveBudget',
      summary: 'Retrieve a budget',
      description:
        'Returns a budget with its spending in the current period. For a budget of every end user, `user` selects the ' +
        `end user whose spending is returned. ${sees}`,
      answer: budget,
    },
    'PATCH /v1/budgets/{id}': {
      operationId: 'updateBudget',
      summary: 'Update a budget',
      description: `Changes amount, mode or alerts; all gateways enforce the change once this returns. ${who}`,
      request: { amount: '50' },
      answer: { ...budget, amount: '50', remaining: '37' },
    },
    'DELETE /v1/budgets/{id}': {
      operationId: 'deleteBudget',
      summary: 'Delete a budget',
      description: `Deletes a budget; no gateway enforces it once this returns. ${who}`,
      answer: { object: 'budget.deleted', id: budget.id, deleted: true },
    },
  },
};
