// The tools of an agent framework, searched by its model.

import { Agent } from "@openai/agents";
import { ToolLoopAgent, isStepCount, type LanguageModel, type ToolSet } from "ai";
import { toolSearch } from "toolscout/adapters/ai";
import { ToolSearchAgent } from "toolscout/adapters/openai-agents";

type Model = ConstructorParameters<typeof Agent>[0]["model"];
type FunctionTools = ConstructorParameters<typeof ToolSearchAgent>[0]["searchable"];

/** Vercel AI SDK: the options of an agent, or of `generateText` and `streamText`. */
export function vercel(model: LanguageModel, tools: ToolSet) {
  return new ToolLoopAgent({ model, stopWhen: isStepCount(8), ...toolSearch(tools, { limit: 5 }) });
}

/** OpenAI Agents: an agent with tools to search, one for each conversation. */
export function openaiAgents(model: Model, searchable: FunctionTools) {
  return new ToolSearchAgent({ name: "assistant", model, searchable, limit: 5 });
}
