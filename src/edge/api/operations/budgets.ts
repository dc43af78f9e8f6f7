import { created, exampleId, openaiList } from './examples.ts';
import type { Tag } from './operation.ts';

export const budget = {
  object: 'budget',
  id: exampleId('budget'),
  scope: { type: 'project', id: exampleId('proj') },
  period: 'monthly',
  mode: 'hard',
  models: null,
  amount: '25',
  raise: null,
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
    'Spending limits in USD of projects, API keys and end users, for a UTC day, week, month, quarter or year, or for the life of the budget; for all models or some. ' +
    'A `hard` budget rejects ' +
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
        `scope, period, mode and list of models, and 1,000 in total. ${who}`,
      request: { scope: budget.scope, period: 'weekly', amount: '25', mode: 'hard', models: ['standin-chat'] },
      answer: {
        ...budget,
        period: 'weekly',
        models: ['standin-chat'],
        spent: '0',
        held: '0',
        remaining: '25',
        resets_at: created + 604_800,
      },
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
      description:
        'Changes amount, mode or alerts; all gateways enforce the change once this returns. A `raise` adds to the ' +
        `amount and ends by itself. ${who}`,
      request: { raise: { amount: '10', until: created + 86_400 } },
      answer: { ...budget, raise: { amount: '10', until: created + 86_400 }, remaining: '22' },
    },
    'POST /v1/budgets/{id}/reset': {
      operationId: 'resetBudget',
      summary: 'Reset a budget',
      description:
        'Lets what was spent in the current period count no more. Running requests count with what they are charged ' +
        `afterwards. A budget of every end user cannot be reset. ${who}`,
      answer: { ...budget, spent: '0', remaining: '24.5' },
    },
    'DELETE /v1/budgets/{id}': {
      operationId: 'deleteBudget',
      summary: 'Delete a budget',
      description: `Deletes a budget; no gateway enforces it once this returns. ${who}`,
      answer: { object: 'budget.deleted', id: budget.id, deleted: true },
    },
  },
};
