// Adds tools to a catalog, finds the right one, and measures how well that works.
//
//     npm install toolscout

import { Catalog } from "toolscout";

const tools = [
  {
    name: "send_email",
    description: "Sends an email to one or more recipients.",
    inputSchema: {
      type: "object",
      properties: { to: { type: "string" }, text: { type: "string" } },
      required: ["to", "text"],
    },
  },
  { name: "create_event", description: "Creates an event in a calendar." },
  { name: "create_issue", description: "Opens an issue in a repository." },
];

// `Catalog.open("folder")` has one that stays.
const catalog = await Catalog.temporary();
console.log((await catalog.add(tools, { server: "office" })).added);

const results = await catalog.search("write a mail to Ada", { limit: 2 });
for (const hit of results) {
  console.log(hit.score.toFixed(3), hit.id, hit.description);
}
// This goes into a request to a model as it is.
console.log(results.tools("openai"));

const evaluation = await catalog.evaluate([
  { query: "report a bug", relevant: ["office/create_issue"] },
  { query: "block Friday afternoon", relevant: ["office/create_event"] },
]);
console.log(evaluation.metrics["recall@1"]);
await catalog.close();
