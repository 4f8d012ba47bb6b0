// Runs aimock, a mock of LLM providers that is not ours, until its input ends. It prints its URL.
//
// Usage: aimock.mjs DIRECTORY
//
// DIRECTORY has node_modules.
import { createRequire } from "node:module";

const { LLMock } = createRequire(process.argv[2] + "/")("@copilotkit/aimock");
const mock = new LLMock({ port: 0 });
// All providers' names for what was used: each has its own.
const usage = { input_tokens: 6, prompt_tokens: 6, output_tokens: 10, completion_tokens: 10, total_tokens: 16 };
mock.onMessage("How high", { content: "The water is two feet below the gate.", usage });
await mock.start();
console.log(JSON.stringify({ text: mock.url }));
process.stdin.on("end", () => process.exit()).resume();
