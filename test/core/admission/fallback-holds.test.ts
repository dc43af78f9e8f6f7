import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import { createMemoryAdmission, moveHold, takeHold } from '#core/admission/admission.ts';
import type { ProjectLimit } from '#core/admission/contract/types.ts';
import { demandFor, organizationId, projectId } from './hold-demand.ts';

/** The hold of a request while models are asked one after the other. */

const usedUp: ProjectLimit = {
  slot: randomUUID(),
  projectId,
  model: 'dear',
  limits: { requestsPerMinute: 1, tokensPerMinute: null, requestsPerDay: null },
};

it.each([[false], [true]])(
  'holds what the answering model needs after models were passed over, stream %s',
  async (follows) => {
    const admission = createMemoryAdmission({
      loadBalance: () => Promise.resolve({ balancePicoUsd: 10n ** 15n, charged: [] }),
      loadTokens: () => Promise.resolve({ tokens: 0, counted: [] }),
      onCredit: () => undefined,
      projectLimits: { of: (_, model) => (model === 'dear' ? usedUp : null) },
      clock: systemClock,
    });
    const other = await takeHold(admission, demandFor(uuidv7(), 'dear', 1n, follows));
    if (!other.ok) throw new Error(other.code);
    const before = await admission.heldMicroUsd(organizationId);
    const requestId = uuidv7();
    const grant = await takeHold(admission, demandFor(requestId, 'cheap', 1n, follows));
    if (!grant.ok) throw new Error(grant.code);
    const passed = await moveHold(admission, grant, demandFor(requestId, 'dear', 5n, follows));
    expect(passed.ok).toBe(false);
    const served = await moveHold(admission, grant, demandFor(requestId, 'dearest', 8n, follows), passed.heldMicroUsd);
    if (!served.ok) throw new Error('another model was passed over');
    const held = (await admission.heldMicroUsd(organizationId)) - before;
    expect(served.heldMicroUsd).toBe(held);
    const alone = await takeHold(admission, demandFor(uuidv7(), 'dearest', 8n, follows));
    expect(alone).toMatchObject({ ok: true, heldMicroUsd: held });
  },
);
