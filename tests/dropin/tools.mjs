/** Five hundred tools of a company, in twelve groups. */

const GROUPS = {
  code: ["source code host", ["issue", "pull request", "branch", "release", "build", "review comment", "repository"]],
  mail: ["mailbox", ["message", "draft", "mail folder", "filter rule", "signature", "attachment", "distribution list"]],
  calendar: ["calendar", ["event", "invitation", "reminder", "room booking", "working hours", "public holiday", "availability poll"]],
  crm: ["customer database", ["lead", "account", "deal", "sales pipeline", "quote", "customer note", "campaign"]],
  billing: ["billing system", ["invoice", "payment", "refund", "subscription", "coupon", "tax rate", "payout"]],
  files: ["document store", ["document", "folder", "share link", "comment thread", "file version", "template", "spreadsheet"]],
  chat: ["team chat", ["channel", "direct message", "reaction", "user group", "pinned post", "bot", "emoji"]],
  deploy: ["hosting platform", ["service", "cluster", "container image", "secret", "certificate", "rollout", "firewall rule"]],
  monitor: ["monitoring system", ["alert", "dashboard", "incident", "on-call shift", "metric", "log query", "status page"]],
  people: ["personnel system", ["employee", "leave request", "payroll run", "job opening", "candidate", "training course", "expense report"]],
  shop: ["web shop", ["product", "order", "shipment", "return", "warehouse", "gift card", "supplier"]],
  travel: ["travel desk", ["flight", "hotel booking", "rental car", "itinerary", "visa application", "train ticket", "travel policy"]],
};

const VERBS = {
  list: ["Lists every", "newest first, a page at a time", { page: ["integer", "Which page, from 1."], status: ["string", "Only those in this state."] }],
  get: ["Gets one", "with all its fields", { id: ["string", "Which one."] }],
  create: ["Creates a new", "and returns its id", { title: ["string", "What it is called."], notes: ["string", "Anything else that matters."] }],
  update: ["Updates an existing", "only in the fields that are given", { id: ["string", "Which one."], notes: ["string", "What it should say from now on."] }],
  delete: ["Deletes an existing", "for good", { id: ["string", "Which one."], reason: ["string", "Why, for the log."] }],
  export: ["Exports a", "as a file to download", { id: ["string", "Which one."], format: ["string", "csv, json or pdf."] }],
};

/** Each with what a model would ask a search for: `need`. */
export function generate(count = 500) {
  const tools = [];
  for (const [group, [place, things]] of Object.entries(GROUPS)) {
    for (const thing of things) {
      for (const [verb, [begins, ends, fields]] of Object.entries(VERBS)) {
        tools.push({
          name: `${group}_${verb}_${thing.replaceAll(/[ -]/g, "_")}`,
          description: `${begins} ${thing} of the ${place}, ${ends}. Needs the right to ${verb} it.`,
          parameters: parameters(fields, thing),
          need: `${verb} ${thing} in the ${place}`,
        });
      }
    }
  }
  return tools.slice(0, count);
}

function parameters(fields, thing) {
  const properties = Object.entries(fields).map(([name, [type, says]]) => [name, { type, description: `${says} Of the ${thing}.` }]);
  return { type: "object", properties: Object.fromEntries(properties), required: Object.keys(fields), additionalProperties: false };
}

/** Arguments that the tool takes. */
export function exampleArguments(tool, random) {
  const words = ["north", "größe", "Ω-7", 'a "b"', "back\\slash", "line\nbreak", "日本", "🙂", "plain"];
  const one = ([name, { type }]) => [name, type === "integer" ? random.below(9) + 1 : `${random.pick(words)} ${random.below(1000)}`];
  return Object.fromEntries(Object.entries(tool.parameters.properties).map(one));
}

/** As the API of a provider takes them. */
export const SHAPES = {
  chat: ({ name, description, parameters }) => ({ type: "function", function: { name, description, parameters } }),
  responses: ({ name, description, parameters }) => ({ type: "function", name, description, parameters, strict: false }),
  messages: ({ name, description, parameters }) => ({ name, description, input_schema: parameters }),
};
