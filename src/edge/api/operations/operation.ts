/** Texts and examples of one route in the OpenAPI document, besides its schemas. */
export interface Operation {
  /** A verb and a noun in camelCase; a route of OpenAI's API has the id of OpenAI's published document. */
  readonly operationId: string;
  /** Imperative, at most eight words. */
  readonly summary: string;
  /** Permissions, effects, units and limits of the route. */
  readonly description: string;
  /** A body that the route accepts. */
  readonly request?: unknown;
  /** A body of the first successful answer, in the first of its content types. */
  readonly answer?: unknown;
  /** A body of an error, for a route that answers nothing else. */
  readonly error?: unknown;
}

/** Explains when a revoked key ends everywhere. */
export const streamsEnd =
  'Its running streams end within one second, or within 2.2 seconds while Redis is unavailable. A gateway that cannot ' +
  'reach PostgreSQL ends them once it can, and may accept the key for up to `HEADGATE_AUTH_STALE_SECONDS`.';

/** By method and path, such as "GET /v1/keys/{id}". */
export type Operations = Readonly<Record<string, Operation>>;

/** A section of the document. All its routes have one error shape, except those of inference. */
export interface Tag {
  readonly name: string;
  readonly description: string;
  readonly operations: Operations;
}

/**
 * Returns the operations of routes that are served at `/v1` and at `/api/v1`. Their ids end in the prefix, so that they
 * differ from each other and from OpenAI's ids: "listProjectsV1" and "listProjectsApiV1".
 * @param operations by method and path without prefix, such as "GET /projects"
 */
export function atBothPrefixes(operations: Operations): Operations {
  const all = Object.entries(operations).flatMap(([route, operation]) => {
    const [method = '', path = ''] = route.split(' ');
    const { operationId: name, description } = operation;
    const alias = `${description} The same as \`${method} /v1${path}\`.`;
    return [
      [`${method} /v1${path}`, { ...operation, operationId: `${name}V1` }] as const,
      [`${method} /api/v1${path}`, { ...operation, operationId: `${name}ApiV1`, description: alias }] as const,
    ];
  });
  return Object.fromEntries(all);
}
