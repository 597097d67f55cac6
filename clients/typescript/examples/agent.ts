// An agent over 2,000 tools: schemas of zod, an OpenAPI document, and the tools of MCP servers.
//
//     npm install toolscout zod

import { Catalog, Toolbox } from "toolscout";
import { z } from "zod";

interface Message {
  role: "user" | "assistant" | "tool";
  content: string;
  calls?: { id: string; name: string; arguments: string }[];
  callId?: string;
}
type Model = (messages: Message[], tools: object[]) => Message;

/** Tools by name, as the Vercel AI SDK has them. */
const own = {
  send_email: {
    description: "Sends an email.",
    inputSchema: z.object({ to: z.string().describe("The address of the recipient."), text: z.string() }),
    execute: ({ to, text }: { to: string; text: string }) => `sent ${text} to ${to}`,
  },
};

const shop = {
  openapi: "3.1.0",
  info: { title: "shop", version: "1" },
  servers: [{ url: "https://shop.test" }],
  paths: {
    "/orders/{id}": {
      get: {
        operationId: "showOrder",
        tags: ["orders"],
        summary: "Shows an order and where it is.",
        parameters: [{ name: "id", in: "path", required: true, schema: { type: "string" } }],
      },
    },
    "/admin/orders": { delete: { operationId: "deleteOrders", tags: ["admin"] } },
  },
};

/** What `tools/list` of many MCP servers answers. */
const verbs = ["create", "delete", "list", "update", "archive", "export", "rename", "share"];
const things = ["invoice", "report", "photo", "contract", "meeting"];
const mcp = Array.from({ length: 2000 }, (_, n) => {
  const [verb, thing] = [verbs[n % 8], things[Math.floor(n / 8) % 5]];
  return { name: `${verb}_${thing}_${n}`, description: `${verb}s a ${thing}` };
});

/** Answers a question: the whole agent. */
async function ask(question: string, model: Model, toolbox: Toolbox): Promise<string> {
  const messages: Message[] = [{ role: "user", content: question }];
  toolbox.beginTurn();
  for (;;) {
    const reply = model(messages, toolbox.tools("openai"));
    messages.push(reply);
    if (!reply.calls) break;
    for (const { id, name, arguments: args } of reply.calls) {
      // The text is for the model: how to find the tool, to correct its arguments, or what failed.
      const result = await toolbox.call(name, args).catch(String);
      const content = typeof result === "string" ? result : JSON.stringify(result);
      messages.push({ role: "tool", callId: id, content });
    }
  }
  toolbox.endTurn();
  return messages.at(-1)?.content ?? "";
}

/** Plays a model: it searches, calls what it finds, and says what came of it. */
const played: Model = (messages, tools) => {
  const [question, last] = [messages[0]?.content ?? "", messages.at(-1)];
  if (last?.role === "tool" && !last.content.includes("loaded")) {
    return { role: "assistant", content: `Done: ${last.content}` };
  }
  const isMail = question.includes("mail");
  const wanted = isMail ? "send_email" : "shop__showOrder";
  const args = isMail ? { to: "ada@example.com", text: "Hello" } : { id: "7" };
  const isVisible = JSON.stringify(tools).includes(`"${wanted}"`);
  const [name, given] = isVisible ? [wanted, args] : ["tool_search", { query: question }];
  const call = { id: String(messages.length), name, arguments: JSON.stringify(given) };
  return { role: "assistant", content: "", calls: [call] };
};

const catalog = await Catalog.temporary({ embedder: "table" });
await catalog.add(own);
await catalog.add(shop, { exclude: "admin" });
await catalog.add(mcp, { server: "company" });
const showOrder = ({ id }: { id: string }) => ({ id, status: "shipped" });
const functions = { send_email: own.send_email.execute, "shop/showOrder": showOrder };
const toolbox = new Toolbox(catalog, { budget: 2000, functions });
console.log((await catalog.stats()).tools, "tools");
console.log(await ask("Send a mail to Ada.", played, toolbox));
console.log(await ask("Where is my order 7?", played, toolbox));
await catalog.close();
