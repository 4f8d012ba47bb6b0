from google import genai

client = genai.Client()  # reads GOOGLE_GEMINI_BASE_URL and GEMINI_API_KEY
call = {"model": "gemini-2.5-flash-lite", "contents": "How does a lock work?", "config": {"max_output_tokens": 8}}

answer = client.models.generate_content(**call)
print("whole: ", answer.text)

print("stream:", end=" ")
for chunk in client.models.generate_content_stream(**call):
    print(chunk.text or "", end="", flush=True)
print()
