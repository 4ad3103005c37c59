/**
 * For programs that live for a moment, or start often: zod compiles each schema when it first meets a
 * value, which pays only after thousands of values. Imported for its effect, before any schema is used.
 */
import { z } from "zod";

z.config({ jitless: true });
