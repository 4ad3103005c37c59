/** Who did something, as people know them: a token by its name, anything else as it stands. */

/** SQL for the name behind a column that holds an actor. */
export function actorName(column: string): string {
  return `coalesce((select tokens.name from tokens where tokens.id = substr(${column}, 7)
                    and ${column} like 'token:%'), ${column})`;
}
