from anthropic import Anthropic

client = Anthropic()  # reads ANTHROPIC_BASE_URL and ANTHROPIC_API_KEY
question = [{"role": "user", "content": "How does a lock work?"}]

answer = client.messages.create(model="claude-sonnet-4-6", max_tokens=8, messages=question)
print("whole: ", answer.content[0].text)

print("stream:", end=" ")
with client.messages.stream(model="claude-sonnet-4-6", max_tokens=8, messages=question) as stream:
    for text in stream.text_stream:
        print(text, end="", flush=True)
print()
