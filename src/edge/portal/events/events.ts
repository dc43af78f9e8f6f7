export { batchesPage, batchFile, batchPage, cancelBatch } from './batches-page.ts';
export {
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
export { changeAlertMails, createWebhook, newWebhookPage, webhooksPage } from './webhooks-page.ts';
