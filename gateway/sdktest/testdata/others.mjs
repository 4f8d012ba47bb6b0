// Makes the calls of what is not a chat with the official TypeScript SDK of OpenAI.
//
// Usage: others.mjs DIRECTORY
//
// DIRECTORY has node_modules. The only line of the input is JSON: the gateway's url, and the keys
// mine and foreign. The output is JSON: what became of each step, as a text; of an error its class,
// and its message.
import { once } from "node:events";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(process.argv[2] + "/");
const OpenAI = require("openai");

const input = createInterface({ input: process.stdin });
const [line] = await once(input, "line");
input.close();
const job = JSON.parse(line);
const of = (apiKey) => new OpenAI({ baseURL: job.url + "/v1", apiKey, maxRetries: 0 });
const mine = of(job.mine);
const foreign = of(job.foreign);
const model = "gpt-image-1";
const steps = {};

async function step(name, call) {
  try {
    steps[name] = String(await call());
  } catch (e) {
    steps[name] = e.constructor.name + ": " + e.message;
  }
}

const png = (name) => OpenAI.toFile(Buffer.from(job.png, "base64"), name, { type: "image/png" });

async function edit(more) {
  const r = await mine.images.edit({ model, prompt: "A dog", ...more });
  return r.data.length + " " + r.usage.input_tokens_details.image_tokens;
}

await step("moderation", async () => (await mine.moderations.create({ input: "Hello" })).results[0].flagged);
await step("moderations", async () => (await mine.moderations.create({ model: "omni-moderation-latest", input: ["a", "b"] })).results.length);
await step("images", async () => (await mine.images.generate({ model, prompt: "A cat", n: 2, size: "1024x1024", quality: "low" })).usage.output_tokens);
await step("stream", async () => {
  const kinds = [];
  let last;
  for await (const e of await mine.images.generate({ model, prompt: "A cat", stream: true, partial_images: 2 })) {
    kinds.push(e.type);
    last = e;
  }
  return kinds.join(" ") + " " + last.usage.output_tokens;
});
await step("edit", async () => edit({ image: await png("a.png") }));
await step("edits", async () => edit({ image: [await png("a.png"), await png("b.png")], mask: await png("m.png"), n: 2 }));
await step("variation", async () => mine.images.createVariation({ image: await png("a.png") }));
await step("speech", async () => mine.audio.speech.create({ model: "tts-1", voice: "alloy", input: "x" }));
await step("batches", async () => mine.batches.list());

const r = await mine.responses.create({ model: "gpt-4o", max_output_tokens: 20, input: "Hello" });
await step("get", async () => (await mine.responses.retrieve(r.id)).id === r.id);
await step("items", async () => (await mine.responses.inputItems.list(r.id)).data.length);
const more = { model: "gpt-4o", max_output_tokens: 20, input: "x", previous_response_id: r.id };
await step("continue", async () => (await mine.responses.create(more)).status);
await step("foreign get", async () => foreign.responses.retrieve(r.id));
await step("foreign continue", async () => foreign.responses.create(more));
await step("conversation", async () => mine.conversations.create());
await step("delete", async () => mine.responses.delete(r.id));
await step("deleted", async () => mine.responses.retrieve(r.id));

const f = await mine.files.create({ file: await OpenAI.toFile(Buffer.from("Hello"), "a.txt"), purpose: "user_data" });
const ask = { model: "gpt-4o", max_output_tokens: 20, input: [{ role: "user", content: [{ type: "input_file", file_id: f.id }] }] };
await step("file", async () => (await mine.files.retrieve(f.id)).bytes);
await step("content", async () => (await mine.files.content(f.id)).text());
await step("file in a prompt", async () => (await mine.responses.create(ask)).status);
await step("foreign file", async () => foreign.files.content(f.id));
await step("foreign file in a prompt", async () => foreign.responses.create(ask));
await step("files", async () => mine.files.list());
await step("delete file", async () => (await mine.files.delete(f.id)).deleted);
console.log(JSON.stringify(steps));
