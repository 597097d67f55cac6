// Speaks to toolscout with the TypeScript SDK and prints what it saw as one line of JSON.
//
//     typescript_sdk.mjs v1|v2 stdio COMMAND [ARGUMENT ...]
//     typescript_sdk.mjs v1|v2 http URL [KEY]
//
// v1 is @modelcontextprotocol/sdk; v2 is @modelcontextprotocol/client, which also speaks the sessionless protocol. Both are
// looked up from the working directory, where they were installed.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const installed = createRequire(`${process.cwd()}/`);
const load = (name) => import(pathToFileURL(installed.resolve(name)));
const [generation, kind, target, ...rest] = process.argv.slice(2);

async function parts() {
  if (generation === "v2") {
    const sdk = await load("@modelcontextprotocol/client");
    return { ...sdk, ...(await load("@modelcontextprotocol/client/stdio")) };
  }
  const names = ["index", "stdio", "streamableHttp"];
  return Object.assign({}, ...(await Promise.all(names.map((name) => load(`@modelcontextprotocol/sdk/client/${name}.js`)))));
}

const { Client, StdioClientTransport, StreamableHTTPClientTransport } = await parts();
const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith("TOOLSCOUT_") || name === "PATH"));
const headers = rest.length > 0 ? { Authorization: `Bearer ${rest[0]}` } : {};
const transport = () =>
  kind === "stdio"
    ? new StdioClientTransport({ command: target, args: rest, env })
    : new StreamableHTTPClientTransport(new URL(target), { requestInit: { headers } });

const options = generation === "v2" ? { versionNegotiation: { mode: "auto" } } : {};
const client = new Client({ name: "test", version: "1" }, options);
await client.connect(transport());
const names = async () => (await client.listTools()).tools.map((tool) => tool.name);
const before = await names();
const call = (name, args) => client.callTool({ name, arguments: args });
const answer = await call("tool_search", { query: "current time in a timezone", limit: 2 });
const found = JSON.parse(answer.content[0].text).tools.map((line) => line.split("(")[0]);
const after = await names();
const called = await call("call_tool", { name: "time/get_current_time", arguments: { timezone: "Europe/Berlin" } });
const bad = await call("call_tool", { name: "nope" });
const protocol = client.getNegotiatedProtocolVersion?.() ?? "";
await client.close();
console.log(JSON.stringify({ protocol, before, after, found, called: called.content[0].text, bad: [bad.isError] }));
