/** Images of messages, as files and as data URLs. */

/** @param {File} file @returns {Promise<string>} */
export function dataUrlOf(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener('load', () => resolve(typeof reader.result === 'string' ? reader.result : ''));
    reader.addEventListener('error', () => reject(new Error('The image could not be read.')));
    reader.readAsDataURL(file);
  });
}

/** @param {string} dataUrl base64, as dataUrlOf returns it */
export function fileOf(dataUrl) {
  const [head = '', data = ''] = dataUrl.split(',');
  const type = /^data:(image\/[a-z]+);/.exec(head)?.[1] ?? 'image/png';
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  return new File([bytes], `image.${type.slice('image/'.length)}`, { type });
}
