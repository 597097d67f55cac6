// Registers two tools, finds the right one, and says that it was used. Needs nothing but `fetch`.
//
//     npm ci && npm run build && node search_tools.js [URL]

declare const process: { argv: string[]; env: Record<string, string | undefined>; exitCode?: number };

interface Tool {
  name: string;
  description: string;
  input_schema: object;
}

interface Answer {
  hits: { id: string; name: string; server: string; description: string; score: number }[];
  tools: Tool[];
  no_match: { reason: string; nearest: string[] } | null;
  feedback_token: string;
}

const tools: Tool[] = [
  {
    name: "send_email",
    description: "Sends an email to one or more recipients.",
    input_schema: {
      type: "object",
      properties: { to: { type: "string" }, text: { type: "string" } },
      required: ["to", "text"],
    },
  },
  {
    name: "create_event",
    description: "Creates an event in a calendar.",
    input_schema: { type: "object", properties: { title: { type: "string" } } },
  },
];

const url = process.argv[2] ?? "http://127.0.0.1:7700";
const key = process.env.TOOLSCOUT_KEY;

async function call<T>(path: string, body: object): Promise<T> {
  const headers: Record<string, string> = { "Content-Type": "application/json" };
  if (key) headers.Authorization = `Bearer ${key}`;
  const request = { method: "POST", headers, body: JSON.stringify(body) };
  const response = await fetch(`${url}/v1/catalogs/default${path}`, request);
  const answer = await response.json();
  if (!response.ok) throw new Error(`${response.status}: ${answer.error.message}`);
  return answer;
}

async function main(): Promise<void> {
  await call("/tools?server=office", tools);
  const answer = await call<Answer>("/search", {
    query: "write a mail to Ada",
    k: 1,
    format: "anthropic",
    max_tokens: 2000,
  });
  if (answer.no_match) throw new Error(answer.no_match.reason);
  // answer.tools goes into the model's `tools` as it is.
  console.log(answer.hits[0].id, answer.tools[0].name);
  await call("/feedback", { feedback_token: answer.feedback_token, tool: answer.hits[0].id });
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
