// Speaks to a profile of toolscout with the TypeScript SDK, whose person says yes, and prints what it saw as a line of JSON.
//
//     typescript_profile.mjs v1|v2 URL KEY OWN OTHER
//
// OWN is a server of the profile, OTHER one outside of it. v1 is @modelcontextprotocol/sdk, v2 @modelcontextprotocol/client; both
// are looked up from the working directory, where they were installed.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const installed = createRequire(`${process.cwd()}/`);
const load = (name) => import(pathToFileURL(installed.resolve(name)));
const [generation, url, key, own, other] = process.argv.slice(2);

async function parts() {
  if (generation === "v2") {
    return { ...(await load("@modelcontextprotocol/client")), elicitation: "elicitation/create" };
  }
  const names = ["client/index", "client/streamableHttp", "types"];
  const [...modules] = await Promise.all(names.map((name) => load(`@modelcontextprotocol/sdk/${name}.js`)));
  const sdk = Object.assign({}, ...modules);
  return { ...sdk, elicitation: sdk.ElicitRequestSchema };
}

const { Client, StreamableHTTPClientTransport, elicitation } = await parts();
const options = generation === "v2" ? { versionNegotiation: { mode: "auto" } } : {};
const client = new Client({ name: "test", version: "1" }, { ...options, capabilities: { elicitation: {} } });
let asked = 0;
client.setRequestHandler(elicitation, async () => {
  asked += 1;
  return { action: "accept", content: { approve: true } };
});
const headers = { Authorization: `Bearer ${key}` };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));

const text = async (name, args) => (await client.callTool({ name, arguments: args })).content[0].text;
const echo = { text: `hello ${own}` };
const report = {
  listed: (await client.listTools()).tools.map((tool) => [tool.name, tool.description]),
  servers: await text("list_tools", {}),
  found: await text("tool_search", { query: "says it again", limit: 20 }),
  called: await text("call_tool", { name: `${own}/echo`, arguments: echo }),
  other: await text("call_tool", { name: `${other}/echo`, arguments: echo }),
  missing: await text("call_tool", { name: "none/echo", arguments: echo }),
  asked,
};
await client.close();
console.log(JSON.stringify(report));
