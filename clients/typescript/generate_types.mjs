// Writes the types that are generated, to standard output.
//
// node generate_types.mjs binding FOLDER    the native module, from what its build left in $NAPI_TYPE_DEF_TMP_FOLDER
// node generate_types.mjs api URL           the JSON of the HTTP API, from the description of a running server

const [what, source] = process.argv.slice(2);

async function binding() {
  const { generateTypeDef } = await import("@napi-rs/cli");
  const header = "/* The native module. Generated from its source by generate_types.mjs. */\n\n";
  const { dts } = await generateTypeDef({ typeDefDir: source, cwd: process.cwd(), dtsHeader: header });
  return dts;
}

async function api() {
  const { default: openapi, astToString } = await import("openapi-typescript");
  const answer = await fetch(`${source}/openapi.json`, { signal: AbortSignal.timeout(30_000) });
  if (!answer.ok) throw new Error(`${answer.url} answered ${answer.status}`);
  const description = await answer.json();
  // The client has methods of its own for the routes.
  const types = await openapi({ ...description, paths: {} }, { alphabetize: true, defaultNonNullable: false });
  return `/* The JSON of the HTTP API. Generated from its description by generate_types.mjs. */\n\n${astToString(types)}`;
}

const kinds = { binding, api };
if (!(what in kinds) || !source) throw new Error("usage: node generate_types.mjs binding FOLDER | api URL");
process.stdout.write(await kinds[what]());
