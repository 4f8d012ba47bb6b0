import { GoogleGenAI } from "@google/genai";

const client = new GoogleGenAI({}); // reads GOOGLE_GEMINI_BASE_URL and GEMINI_API_KEY
const call = { model: "gemini-2.5-flash-lite", contents: "How does a lock work?", config: { maxOutputTokens: 8 } };

const answer = await client.models.generateContent(call);
console.log("whole: ", answer.text);

process.stdout.write("stream: ");
for await (const chunk of await client.models.generateContentStream(call)) {
  process.stdout.write(chunk.text ?? "");
}
console.log();
