// Plain JavaScript on purpose: an older Node must be able to read this file to say that it is too old.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);

// From 22.18 on Node runs TypeScript files without a flag.
if (major < 22 || (major === 22 && minor < 18)) {
  console.error(
    `Headgate needs Node 22.18 or newer, this is ${process.versions.node}; ` +
      '"npm ci" brings its own Node 24, which "npm start" then uses.',
  );
  process.exit(1);
}

await import('./main.ts');
