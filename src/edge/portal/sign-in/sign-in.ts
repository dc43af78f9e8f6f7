export { browserName } from './browser-name.ts';
export { registerInvitation } from './invitation-page.ts';
export { callbackPath, registerOidc } from './oidc.ts';
export { registerPasswordLinks } from './password-links.ts';
export { registerSignIn, registerWelcome, signedOut } from './sign-in-form.ts';
