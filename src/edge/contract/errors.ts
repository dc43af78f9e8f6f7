import { z } from 'zod';

/** Bodies of errors. A group of paths has one of three shapes. */

const stableCode = z.string().meta({ description: 'Code of the error, which does not change' });
const wrongField = z
  .string()
  .nullable()
  .meta({ description: 'Field or header that is wrong; null if the error concerns none' });

export const openaiErrorSchema = z
  .object({
    error: z.object({
      message: z.string(),
      type: z.string(),
      code: stableCode,
      param: wrongField,
    }),
  })
  .meta({ id: 'Error' });

export const anthropicErrorSchema = z
  .object({
    type: z.literal('error'),
    error: z.object({
      type: z.string(),
      message: z.string(),
      code: stableCode,
      param: wrongField,
    }),
  })
  .meta({ id: 'AnthropicError' });

export const genericErrorSchema = z
  .object({
    error: z.object({
      code: stableCode.meta({ example: 'VALIDATION_ERROR' }),
      message: z.string(),
      details: z
        .array(z.object({ field: z.string(), message: z.string() }))
        .meta({ description: 'All wrong fields; empty for most errors' }),
    }),
  })
  .meta({ id: 'GenericError' });

/** Reads an error of any shape; a server in front of the gateway may leave out everything except the message. */
export const anyErrorSchema = z.object({
  error: z.object({
    message: z.string(),
    code: stableCode.nullish(),
    param: wrongField.optional(),
    details: genericErrorSchema.shape.error.shape.details.optional(),
  }),
});

export type AnyError = z.output<typeof anyErrorSchema>;
