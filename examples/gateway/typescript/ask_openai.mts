import OpenAI from "openai";

const client = new OpenAI(); // reads OPENAI_BASE_URL and OPENAI_API_KEY
const call = {
  model: "gpt-4.1-mini",
  max_tokens: 8,
  messages: [{ role: "user" as const, content: "How does a lock work?" }],
};

const answer = await client.chat.completions.create(call);
console.log("whole: ", answer.choices[0].message.content);

process.stdout.write("stream: ");
for await (const chunk of await client.chat.completions.create({ ...call, stream: true })) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? "");
}
console.log();
