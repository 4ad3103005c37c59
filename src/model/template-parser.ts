/**
 * Reads tokens into a syntax tree, and notes every path below `.nuon` or `.landfall` on the way.
 *
 * What can be known without values is refused here: unknown functions and variables, wrong numbers
 * of arguments, blocks that do not end. So a broken template is found when the app is read.
 */
import { didYouMean } from "./nearest.ts";
import { TemplateError } from "./template-error.ts";
import { templateFunctions } from "./template-functions.ts";
import { lexTemplate, type Token } from "./template-lexer.ts";
import {
  type DotPath,
  indexPathOf,
  placeReferences,
  staticPathOf,
  type UnplacedReference,
} from "./template-references.ts";
import type { Expression, Pipe, Template, TemplateNode } from "./template-syntax.ts";

const depthMax = 64;
const textLengthMax = 1_048_576;
const blockWords = ["if", "with", "range"] as const;
const laterWords = ["define", "template", "block", "break", "continue"];
const rootNames: readonly string[] = ["nuon", "landfall"];

/** Reads a whole text as a template. */
export function parseTemplateText(text: string): Template {
  if (text.length > textLengthMax) {
    throw new TemplateError(
      `Expected a template of at most ${textLengthMax} characters, got ${text.length}.`,
      text,
      0,
    );
  }
  const parser = createParser(text, lexTemplate(text));
  const nodes = parser.parseNodes([], 0);
  parser.expectEnd();
  return { text, nodes, references: placeReferences(text, parser.references) };
}

function createParser(text: string, tokens: readonly Token[]) {
  let position = 0;
  const scopes: string[][] = [[""]];
  const references: UnplacedReference[] = [];
  const end: Token = { kind: "end", text: "", offset: text.length, spaced: false };

  const peek = (ahead = 0): Token => tokens[position + ahead] ?? end;
  const next = (): Token => tokens[position++] ?? end;
  const fail = (reason: string, token: Token): never => {
    throw new TemplateError(reason, text, token.offset);
  };
  const isSymbol = (token: Token, symbol: string) =>
    token.kind === "symbol" && token.text === symbol;

  function parseNodes(dot: DotPath, depth: number): TemplateNode[] {
    if (depth > depthMax) fail(`Expected at most ${depthMax} nested blocks, got more.`, peek());
    const nodes: TemplateNode[] = [];
    for (;;) {
      const token = peek();
      if (token.kind === "text") {
        nodes.push({ kind: "text", text: next().text });
      } else if (token.kind === "open") {
        const name = peek(1).kind === "word" ? peek(1).text : "";
        if (name === "end" || name === "else") return nodes;
        next();
        nodes.push(parseAction(name, dot, depth));
      } else return nodes;
    }
  }

  function parseAction(name: string, dot: DotPath, depth: number): TemplateNode {
    const block = blockWords.find((candidate) => candidate === name);
    if (block) {
      next();
      return parseBlock(block, dot, depth);
    }
    if (laterWords.includes(name)) {
      fail(`Expected an action that Landfall knows, got \`${name}\`, which it does not.`, peek());
    }
    const pipe = parsePipe(dot, depth, 1);
    expectClose();
    return { kind: "output", pipe };
  }

  function parseBlock(kind: (typeof blockWords)[number], dot: DotPath, depth: number) {
    const opened = peek(-2);
    scopes.push([]);
    const pipe = parsePipe(dot, depth, kind === "range" ? 2 : 1);
    expectClose();
    const inner = kind === "if" ? dot : kind === "with" ? staticPathOf(pipe.expression, dot) : null;
    scopes.push([]);
    const body = parseNodes(inner, depth + 1);
    scopes.pop();
    const otherwise = parseElse(opened, dot, depth);
    scopes.pop();
    return { kind, pipe, body, otherwise };
  }

  /** From `{{else …}}` or `{{end}}` to behind the block's own end. */
  function parseElse(opened: Token, dot: DotPath, depth: number): TemplateNode[] {
    if (peek().kind !== "open") fail("Expected `{{end}}` for this block, got the end.", opened);
    next();
    if (next().text === "end") {
      expectClose();
      return [];
    }
    const again = blockWords.find((word) => word !== "range" && word === peek().text);
    if (peek().kind === "word" && again) {
      if (depth >= depthMax) fail(`Expected at most ${depthMax} nested blocks, got more.`, peek());
      next();
      return [parseBlock(again, dot, depth + 1)];
    }
    expectClose();
    scopes.push([]);
    const nodes = parseNodes(dot, depth + 1);
    scopes.pop();
    if (peek().kind !== "open") fail("Expected `{{end}}` for this block, got the end.", opened);
    next();
    const word = next();
    if (word.text !== "end") fail("Expected `{{end}}`, got a second `{{else}}`.", word);
    expectClose();
    return nodes;
  }

  function parsePipe(dot: DotPath, depth: number, variablesMax: number): Pipe {
    const { variables, assigns } = parseDeclaration(variablesMax);
    const expression = parsePipeline(dot, depth);
    if (!assigns) scopes.at(-1)?.push(...variables);
    return { variables, assigns, expression };
  }

  function parseDeclaration(variablesMax: number): { variables: string[]; assigns: boolean } {
    const none = { variables: [], assigns: false };
    if (peek().kind !== "variable") return none;
    const two = variablesMax === 2 && isSymbol(peek(1), ",") && peek(2).kind === "variable";
    const operator = peek(two ? 3 : 1);
    const assigns = isSymbol(operator, "=");
    if (!assigns && !isSymbol(operator, ":=")) return none;
    const named = two ? [peek(), peek(2)] : [peek()];
    for (const token of named) {
      if (token.text === "") fail("Expected a variable such as `$x`, got `$`, the root.", token);
      if (assigns) checkVariable(token);
    }
    position += two ? 4 : 2;
    return { variables: named.map((token) => token.text), assigns };
  }

  function parsePipeline(dot: DotPath, depth: number): Expression {
    let expression = parseCommand(dot, depth, null);
    while (isSymbol(peek(), "|")) {
      next();
      expression = parseCommand(dot, depth, expression);
    }
    return expression;
  }

  /** One function with its arguments, or one value; `piped` becomes the last argument. */
  function parseCommand(dot: DotPath, depth: number, piped: Expression | null): Expression {
    const first = peek();
    const named = first.kind === "word" && !["true", "false", "nil"].includes(first.text);
    if (!named) {
      const operand = parseOperand(dot, depth);
      if (piped) fail("Expected a function after `|`, got a value.", first);
      if (startsOperand(peek())) fail("Expected `|` or `}}` after a value, got more.", peek());
      return operand;
    }
    next();
    const args: Expression[] = [];
    while (startsOperand(peek())) args.push(parseOperand(dot, depth));
    if (piped) args.push(piped);
    return finishCall(first, args, dot);
  }

  function finishCall(token: Token, args: Expression[], dot: DotPath): Expression {
    const known = templateFunctions.get(token.text);
    if (!known) {
      const hint = didYouMean(token.text, templateFunctions.keys());
      return fail(
        `Expected a function that templates have, got \`${token.text}\`.${hint || " A path begins with a dot."}`,
        token,
      );
    }
    if (args.length < known.min || args.length > known.max) {
      const wanted = known.min === known.max ? `${known.min}` : `${known.min} or more`;
      fail(`Expected ${wanted} arguments for \`${token.text}\`, got ${args.length}.`, token);
    }
    const indexed = token.text === "index" ? indexPathOf(args, dot) : null;
    if (indexed) note([], indexed, args[0]?.offset ?? token.offset, true);
    return { kind: "call", name: token.text, args, offset: token.offset };
  }

  function startsOperand(token: Token): boolean {
    return (
      ["field", "dot", "variable", "word", "string", "number"].includes(token.kind) ||
      isSymbol(token, "(")
    );
  }

  function parseOperand(dot: DotPath, depth: number): Expression {
    const token = next();
    const { offset } = token;
    if (token.kind === "string") return { kind: "literal", value: token.text, offset };
    if (token.kind === "number") return { kind: "literal", value: toNumber(token), offset };
    if (token.kind === "word") return parseWord(token, dot);
    if (token.kind === "dot") return { kind: "dot", fields: [], offset };
    if (token.kind === "field") {
      const fields = [token.text, ...parseFields()];
      note(dot, fields, offset, false);
      return { kind: "dot", fields, offset };
    }
    if (token.kind === "variable") {
      checkVariable(token);
      const fields = parseFields();
      if (token.text === "") note([], fields, offset, false);
      return { kind: "variable", name: token.text, fields, offset };
    }
    if (isSymbol(token, "(")) {
      if (depth >= depthMax) fail(`Expected at most ${depthMax} nested parentheses.`, token);
      const inner = parsePipeline(dot, depth + 1);
      if (!isSymbol(next(), ")")) fail("Expected `)` to close this `(`.", token);
      return { kind: "group", inner, fields: parseFields(), offset };
    }
    return fail("Expected a path, a function or a value, got nothing of the kind.", token);
  }

  function parseWord(token: Token, dot: DotPath): Expression {
    const constants = new Map([
      ["true", true],
      ["false", false],
      ["nil", null],
    ]);
    const value = constants.get(token.text);
    if (value === undefined) return finishCall(token, [], dot);
    return { kind: "literal", value, offset: token.offset };
  }

  function parseFields(): string[] {
    const fields: string[] = [];
    while (peek().kind === "field" && !peek().spaced) fields.push(next().text);
    return fields;
  }

  function toNumber(token: Token): number {
    const value = Number(token.text.replaceAll("_", "").replace(/^\+/, ""));
    return Number.isFinite(value) ? value : fail("Expected a number, got one too large.", token);
  }

  function checkVariable(token: Token): void {
    if (scopes.some((scope) => scope.includes(token.text))) return;
    fail(`Expected a variable that is set, got \`$${token.text}\`. Set it with \`:=\`.`, token);
  }

  function note(dot: DotPath, fields: readonly string[], offset: number, optional: boolean): void {
    const [root, ...path] = [...(dot ?? []), ...fields];
    if (dot === null || root === undefined || !rootNames.includes(root)) return;
    references.push({ path, offset, optional });
  }

  function expectClose(): void {
    const token = next();
    if (token.kind !== "close") fail(`Expected \`}}\` here, got \`${token.text}\`.`, token);
  }

  function expectEnd(): void {
    if (peek().kind === "end") return;
    fail(`Expected a block that this \`${peek(1).text}\` belongs to, got none.`, peek(1));
  }

  return { parseNodes, expectEnd, references };
}
