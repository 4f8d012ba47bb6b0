"""Makes the calls of what is not a chat with the official Python SDK of OpenAI.

The only line of the input is JSON: the gateway's url, and the keys mine and foreign. The output is
JSON: what became of each step, as a text; of an error its class, and its message.
"""

import base64
import json
import sys

import openai

job = json.loads(sys.stdin.readline())
mine = openai.OpenAI(base_url=job["url"] + "/v1", api_key=job["mine"], max_retries=0)
foreign = openai.OpenAI(base_url=job["url"] + "/v1", api_key=job["foreign"], max_retries=0)
png = base64.b64decode(job["png"])
model = "gpt-image-1"
steps = {}


def step(name, call):
    try:
        steps[name] = str(call())
    except Exception as e:
        steps[name] = type(e).__name__ + ": " + str(e)


def streamed():
    kinds = []
    for e in mine.images.generate(model=model, prompt="A cat", stream=True, partial_images=2):
        kinds.append(e.type)
    return " ".join(kinds) + " %d" % e.usage.output_tokens


def edit(**more):
    r = mine.images.edit(model=model, prompt="A dog", **more)
    return "%d %d" % (len(r.data), r.usage.input_tokens_details.image_tokens)


step("moderation", lambda: mine.moderations.create(input="Hello").results[0].flagged)
step("moderations", lambda: len(mine.moderations.create(model="omni-moderation-latest", input=["a", "b"]).results))
step("images", lambda: mine.images.generate(model=model, prompt="A cat", n=2, size="1024x1024", quality="low").usage.output_tokens)
step("stream", streamed)
step("edit", lambda: edit(image=("a.png", png, "image/png")))
step("edits", lambda: edit(image=[("a.png", png, "image/png"), ("b.png", png, "image/png")], mask=("m.png", png, "image/png"), n=2))
step("variation", lambda: mine.images.create_variation(image=("a.png", png, "image/png")))
step("speech", lambda: mine.audio.speech.create(model="tts-1", voice="alloy", input="x").read())
step("batches", lambda: mine.batches.list())

r = mine.responses.create(model="gpt-4o", max_output_tokens=20, input="Hello")
step("get", lambda: mine.responses.retrieve(r.id).id == r.id)
step("items", lambda: len(mine.responses.input_items.list(r.id).data))
step("continue", lambda: mine.responses.create(model="gpt-4o", max_output_tokens=20, input="x", previous_response_id=r.id).status)
step("foreign get", lambda: foreign.responses.retrieve(r.id))
step("foreign continue", lambda: foreign.responses.create(model="gpt-4o", max_output_tokens=20, input="x", previous_response_id=r.id))
step("conversation", lambda: mine.conversations.create())
step("delete", lambda: mine.responses.delete(r.id))
step("deleted", lambda: mine.responses.retrieve(r.id))

f = mine.files.create(file=("a.txt", b"Hello"), purpose="user_data")
ask = [{"role": "user", "content": [{"type": "input_file", "file_id": f.id}]}]
step("file", lambda: mine.files.retrieve(f.id).bytes)
step("content", lambda: mine.files.content(f.id).read())
step("file in a prompt", lambda: mine.responses.create(model="gpt-4o", max_output_tokens=20, input=ask).status)
step("foreign file", lambda: foreign.files.content(f.id).read())
step("foreign file in a prompt", lambda: foreign.responses.create(model="gpt-4o", max_output_tokens=20, input=ask))
step("files", lambda: mine.files.list())
step("delete file", lambda: mine.files.delete(f.id).deleted)
print(json.dumps(steps))
