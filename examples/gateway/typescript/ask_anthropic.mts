import Anthropic from "@anthropic-ai/sdk";

const client = new Anthropic(); // reads ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY
const call = {
  model: "claude-sonnet-4-6",
  max_tokens: 8,
  messages: [{ role: "user" as const, content: "How does a lock work?" }],
};

const answer = await client.messages.create(call);
console.log("whole: ", answer.content[0].type === "text" ? answer.content[0].text : "");

process.stdout.write("stream: ");
for await (const event of await client.messages.create({ ...call, stream: true })) {
  if (event.type === "content_block_delta" && event.delta.type === "text_delta") process.stdout.write(event.delta.text);
}
console.log();
