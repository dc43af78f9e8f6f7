import type { AuditEntryAnswer } from '#edge/contract/audit.ts';
import { actorOf } from '#edge/portal/frame/frame.ts';
import { html, type Html, type MaybeHtml } from '#edge/portal/ui/ui.ts';

/** Turns entries of the audit log into sentences. */

/** Verb phrases by action. The actions listed here can be chosen as a filter. */
export const auditActions: Readonly<Record<string, string>> = {
  'api_key.created': 'created the key',
  'api_key.changed': 'changed the key',
  'api_key.rotated': 'rotated the secret of the key',
  'api_key.revoked': 'revoked the key',
  'api_key.reported': 'reported a leak and revoked the key',
  'api_key.recovered': 'created the recovery key',
  'api_key.imported': 'imported the key',
  'user.created': 'created the user',
  'user.joined': 'accepted an invitation and joined the organization as',
  'user.changed': 'changed the user',
  'user.password_reset': 'used a reset link for the user',
  'user.removed': 'removed from the organization:',
  'user.deleted': 'deleted the user',
  'user.identity_linked': 'linked a sign-in provider to the user',
  'user.identity_removed': 'unlinked a sign-in provider from the user',
  'project.created': 'created the project',
  'project.changed': 'changed the project',
  'project.archived': 'archived the project',
  'project.unarchived': 'unarchived the project',
  'rate_limit.changed': 'changed the limits of a model in the project',
  'service_account.created': 'created the service account',
  'service_account.changed': 'renamed the service account',
  'service_account.deleted': 'deleted the service account',
  'organization.created': 'created the organization',
  'organization.changed': 'changed the organization',
  'organization.suspended': 'suspended the organization',
  'organization.reactivated': 'reactivated the organization',
  'organization.closed': 'closed the organization',
  'organization.billing_currency_changed': 'changed the billing currency of the organization',
  'webhook.created': 'created the webhook',
  'webhook.changed': 'changed the webhook',
  'webhook.rotated': 'rotated the secret of the webhook',
  'webhook.disabled': 'disabled the webhook after failed deliveries:',
  'webhook.deleted': 'deleted the webhook',
  'wallet.credited': 'added credit to the wallet',
  'wallet.adjusted': 'adjusted the wallet',
  'rate_card.created': 'created the rate card',
  'rate_card.ended': 'ended the rate card',
  'conversion_rate.created': 'created the conversion rate',
  'conversion_rate.ended': 'ended the conversion rate',
  'quarantined_record.booked': 'posted the quarantined record',
  'quarantined_record.discarded': 'discarded the quarantined record',
  'hold.released': 'released the hold',
  'response.deleted': 'deleted the stored response',
  'usage_content.deleted': 'deleted the stored content of the request',
  'budget.created': 'created the budget',
  'budget.changed': 'changed the budget',
  'budget.reset': 'reset the budget',
  'budget.deleted': 'deleted the budget',
  'file.deleted': 'deleted the file',
  'batch.created': 'created the batch',
  'batch.cancelled': 'canceled the batch',
  'session.opened': 'signed in: session',
  'session.ended': 'ended the session',
  'sign_in_link.made': 'created a sign-in link for',
  'reset_link.made': 'created a password reset link for',
  'invitation.created': 'invited',
  'invitation.revoked': 'revoked the invitation of',
  'invitation.accepted': 'accepted the invitation of',
  'engine.start_ordered': 'started the engine',
  'engine.stop_ordered': 'stopped the engine',
  'engine.restart_ordered': 'restarted the engine',
  'engine.reset_ordered': 'cleared the failures of the engine',
  'engine.request_canceled': 'canceled a request on the engine',
  'engines.reloaded': 'reloaded the engine files',
  'storage.deleted': 'deleted from a disk:',
  'price.changed': 'changed the engine-file price of the model',
  'cost_budget.changed': 'changed the cost budget of the organization',
  'cluster.created': 'created the cluster',
  'cluster.changed': 'changed the cluster',
  'cluster.moved': 'moved to another organization:',
  'cluster.archived': 'archived the cluster',
  'cluster.access_identity_rotated': 'rotated the SSH key of the cluster',
  'cluster_node.added': 'added the node',
  'cluster_node.changed': 'changed the node',
  'cluster_node.removed': 'removed the node',
  'cluster_node.allocated': 'allocated the node',
  'cluster_node.released': 'released the node',
  'cluster_node.allocation_amended': 'amended an allocation of the node',
  'cluster_node.allocation_voided': 'voided an allocation of the node',
  'cluster_node.estimate_withdrawn': 'withdrew the estimated release of the node',
  'stack.created': 'created the stack',
  'stack.pushed': 'uploaded a new version of the stack',
  'stack.reverted': 'reverted to an earlier version of the stack',
  'stack.changed': 'changed the stack',
  'stack.deleted': 'deleted the stack',
  'run.created': 'started the run',
  'run.confirmed': 'confirmed the plan of the run',
  'run.discarded': 'discarded the plan of the run',
  'run.canceled': 'canceled the run',
  'run.expiry_changed': 'changed the expiry of the run',
  'run.drift_check_changed': 'changed the drift checks of the run',
  'run.forgotten': 'forgot the resources of the run',
  'run.opened': 'opened the web address of the run',
};

const isText = (value: unknown): value is string => typeof value === 'string' && value !== '';

/** Returns the target, by the name in the log if the log has one. */
export function targetOf(
  { before, after, target_id: id }: AuditEntryAnswer,
  names: ReadonlyMap<string, string>,
): MaybeHtml {
  const kept = [after?.['name'], before?.['name'], after?.['email'], before?.['email']].find(isText);
  const name = kept ?? names.get(id);
  return name === undefined ? html`<code>${id}</code>` : html`<strong>${name}</strong>`;
}

export function sentenceOf(entry: AuditEntryAnswer, names: ReadonlyMap<string, string>): Html {
  const { action, target_type: type } = entry;
  const words = auditActions[action];
  const who = actorOf(entry, names);
  if (action === 'engines.reloaded') return html`${who} ${words}`;
  if (words !== undefined) return html`${who} ${words} ${targetOf(entry, names)}`;
  return html`${who}: <code>${action}</code> of ${type.replaceAll('_', ' ')} ${targetOf(entry, names)}`;
}
