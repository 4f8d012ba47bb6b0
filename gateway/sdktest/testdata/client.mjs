// Makes the calls that the tests ask for with one of the official TypeScript SDKs.
//
// Usage: client.mjs DIRECTORY chat|responses|messages|generate
//
// DIRECTORY has node_modules. Each line of the input is a job as JSON, see type job in
// client_test.go; each line of the output is what became of it. Of the SDK nothing is changed but
// the base URL and the key.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(process.argv[2] + "/");

const calls = {
  async chat(job) {
    const c = new (require("openai"))({ baseURL: job.url + "/v1", apiKey: job.key });
    const ask = { model: job.model, max_tokens: job.max, messages: [{ role: "user", content: job.prompt }] };
    if (!job.stream) {
      const r = await c.chat.completions.create(ask);
      return answer(r.choices[0].message.content, r.usage.prompt_tokens, r.usage.completion_tokens);
    }
    return stream(job, async function* (out) {
      for await (const e of await c.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } })) {
        if (e.choices[0]?.delta.content) yield e.choices[0].delta.content;
        if (e.usage) Object.assign(out, { input: e.usage.prompt_tokens, output: e.usage.completion_tokens });
      }
    });
  },

  async responses(job) {
    const c = new (require("openai"))({ baseURL: job.url + "/v1", apiKey: job.key });
    const ask = { model: job.model, max_output_tokens: job.max, input: job.prompt };
    if (!job.stream) {
      const r = await c.responses.create(ask);
      return answer(r.output_text, r.usage.input_tokens, r.usage.output_tokens);
    }
    return stream(job, async function* (out) {
      for await (const e of await c.responses.create({ ...ask, stream: true })) {
        if (e.type === "response.output_text.delta") yield e.delta;
        if (e.type === "response.completed" || e.type === "response.incomplete")
          Object.assign(out, { input: e.response.usage.input_tokens, output: e.response.usage.output_tokens });
      }
    });
  },

  async messages(job) {
    const c = new (require("@anthropic-ai/sdk"))({ baseURL: job.url, apiKey: job.key });
    const ask = { model: job.model, max_tokens: job.max, messages: [{ role: "user", content: job.prompt }] };
    if (!job.stream) {
      const r = await c.messages.create(ask);
      return answer(r.content[0].text, r.usage.input_tokens, r.usage.output_tokens);
    }
    return stream(job, async function* (out) {
      for await (const e of await c.messages.create({ ...ask, stream: true })) {
        if (e.type === "content_block_delta" && e.delta.type === "text_delta") yield e.delta.text;
        if (e.type === "message_start") out.input = e.message.usage.input_tokens;
        if (e.type === "message_delta") out.output = e.usage.output_tokens;
      }
    });
  },

  async generate(job) {
    const { GoogleGenAI } = require("@google/genai");
    const c = new GoogleGenAI({ apiKey: job.key, httpOptions: { baseUrl: job.url } });
    const leaving = new AbortController(); // leaving the loop alone does not close the connection
    const ask = { model: job.model, contents: job.prompt, config: { maxOutputTokens: job.max, abortSignal: leaving.signal } };
    const used = (u) => ({ input: u.promptTokenCount, output: u.candidatesTokenCount });
    if (!job.stream) {
      const r = await c.models.generateContent(ask);
      return { text: r.text, pieces: 1, ...used(r.usageMetadata) };
    }
    return stream(job, async function* (out) {
      try {
        for await (const e of await c.models.generateContentStream(ask)) {
          if (e.text) yield e.text;
          if (e.usageMetadata) Object.assign(out, used(e.usageMetadata));
        }
      } finally {
        leaving.abort();
      }
    });
  },
};

const answer = (text, input, output) => ({ text, pieces: 1, input, output });

// stream reads a stream to its end, or leaves it after so many pieces.
async function stream(job, pieces) {
  const out = { text: "", pieces: 0 };
  try {
    for await (const text of pieces(out)) {
      out.text += text;
      if (++out.pieces === job.leave) break;
    }
  } catch (e) {
    out.error = failure(e);
  }
  return out;
}

// failure is what an error of the SDK says to a program: its class, and what it carries.
function failure(e) {
  const out = { type: e.constructor.name, message: e.message, status: e.status ?? 0, code: e.code ?? e.type ?? "", after: 0 };
  const ms = e.headers?.get?.("retry-after-ms");
  if (ms) out.after = Number(ms) / 1000;
  if (out.type === "ApiError") {
    // This one has the answer's body as its message.
    try {
      const inner = JSON.parse(e.message).error;
      out.code = inner.status;
      for (const d of inner.details ?? []) if (d.retryDelay) out.after = parseFloat(d.retryDelay);
    } catch {
      out.code = "";
    }
  }
  return out;
}

for await (const line of createInterface({ input: process.stdin })) {
  let result;
  try {
    result = await calls[process.argv[3]](JSON.parse(line));
  } catch (e) {
    result = { error: failure(e) };
  }
  console.log(JSON.stringify(result));
}
