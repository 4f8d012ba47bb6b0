from openai import OpenAI

client = OpenAI()  # reads OPENAI_BASE_URL and OPENAI_API_KEY
question = [{"role": "user", "content": "How does a lock work?"}]

answer = client.chat.completions.create(model="gpt-4.1-mini", max_tokens=8, messages=question)
print("whole: ", answer.choices[0].message.content)

print("stream:", end=" ")
for chunk in client.chat.completions.create(model="gpt-4.1-mini", max_tokens=8, messages=question, stream=True):
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
