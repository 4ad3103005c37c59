/** Nothing sensitive gets through, in no form that programs print. */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { createRedactor, mask } from "./redaction.ts";

test("a secret is hidden wherever it stands, raw, in JSON, percent-encoded or in base64", () => {
  const secret = fc
    .string({ minLength: 8, maxLength: 60, unit: "grapheme" })
    .map((text) => text.trim());
  const isLongEnough = (text: string) => text.length >= 8 && !text.includes(mask);
  fc.assert(
    fc.property(secret.filter(isLongEnough), fc.string({ maxLength: 5 }), (text, around) => {
      const redactor = createRedactor();
      redactor.add(text);

      const forms = [
        text,
        JSON.stringify(text).slice(1, -1),
        encodeURIComponent(text.toWellFormed()),
      ];
      for (const form of forms) {
        const shown = redactor.redact(`${around}${form}${around}`);
        assert(!shown.includes(form), shown);
      }
      const encoded = redactor.redact(Buffer.from(`${around}${text}${around}`).toString("base64"));
      assert(!Buffer.from(encoded, "base64").includes(text), encoded);
    }),
  );
});

test("a short secret is hidden as a whole word only", () => {
  const redactor = createRedactor();
  redactor.add("ab");

  assert.equal(redactor.redact("ab cab ab, (ab)"), `${mask} cab ${mask}, (${mask})`);
});

test("a secret of several lines is hidden line by line", () => {
  const redactor = createRedactor();
  redactor.add("-----BEGIN-----\nMIIEvQIBADANBg\n}\n-----END-----");

  assert.equal(redactor.redact("key: MIIEvQIBADANBg"), `key: ${mask}`);
  assert.equal(redactor.redact("}"), "}");
});

test("every text and number inside a value is hidden; true and null are not", () => {
  const redactor = createRedactor();
  redactor.add({ list: ["secret-in-list", 424242], flag: true, nothing: null });

  assert.equal(redactor.redact("secret-in-list 424242 true null"), `${mask} ${mask} true null`);
  assert(redactor.isTainted({ url: "http://secret-in-list/" }));
  assert(!redactor.isTainted({ url: "http://here/", flag: true }));
});

test("a longer secret that holds a shorter one is hidden whole", () => {
  const redactor = createRedactor();
  redactor.add("pass");
  redactor.add("password1");

  assert.equal(redactor.redact("password1"), mask);
});
