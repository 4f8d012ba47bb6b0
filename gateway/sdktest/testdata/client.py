"""Makes the calls that the tests ask for with one of the official Python SDKs.

Usage: client.py chat|responses|messages|generate|mistral|groq|together|ollama

Each line of the input is a job as JSON, see type job in client_test.go; each line of the output is
what became of it. Of the SDK nothing is changed but the base URL and the key.
"""

import json
import sys


def chat(job):
    import openai

    return completions(job, openai.OpenAI(base_url=job["url"] + "/v1", api_key=job["key"]), stream_options={"include_usage": True})


def groq(job):
    import groq

    return completions(job, groq.Groq(base_url=job["url"], api_key=job["key"]))


def together(job):
    import together

    return completions(job, together.Together(base_url=job["url"], api_key=job["key"]))


def completions(job, c, **live):
    """Makes a call with a client that is like OpenAI's. live is what a stream needs to tell its usage."""
    ask = dict(model=job["model"], max_tokens=job["max"], messages=[{"role": "user", "content": job["prompt"]}])
    if not job["stream"]:
        r = c.chat.completions.create(**ask)
        return answer(r.choices[0].message.content, r.usage.prompt_tokens, r.usage.completion_tokens)

    def pieces(out):
        with c.chat.completions.create(**ask, stream=True, **live) as s:
            for e in s:
                if e.choices and e.choices[0].delta.content:
                    yield e.choices[0].delta.content
                usage = getattr(e, "usage", None) or getattr(getattr(e, "x_groq", None), "usage", None)
                if usage:
                    out["input"], out["output"] = usage.prompt_tokens, usage.completion_tokens

    return stream(job, pieces)


def mistral(job):
    from mistralai.client import Mistral

    c = Mistral(server_url=job["url"], api_key=job["key"])
    ask = dict(model=job["model"], max_tokens=job["max"], messages=[{"role": "user", "content": job["prompt"]}])
    if not job["stream"]:
        r = c.chat.complete(**ask)
        return answer(r.choices[0].message.content, r.usage.prompt_tokens, r.usage.completion_tokens)

    def pieces(out):
        with c.chat.stream(**ask) as s:
            for e in s:
                if e.data.choices and e.data.choices[0].delta.content:
                    yield e.data.choices[0].delta.content
                if e.data.usage:
                    out["input"], out["output"] = e.data.usage.prompt_tokens, e.data.usage.completion_tokens

    return stream(job, pieces)


def ollama(job):
    import ollama

    c = ollama.Client(host=job["url"], headers={"Authorization": "Bearer " + job["key"]})
    r = c.chat(model=job["model"], messages=[{"role": "user", "content": job["prompt"]}])
    return answer(r.message.content, r.prompt_eval_count, r.eval_count)


def responses(job):
    import openai

    c = openai.OpenAI(base_url=job["url"] + "/v1", api_key=job["key"])
    ask = dict(model=job["model"], max_output_tokens=job["max"], input=job["prompt"])
    if not job["stream"]:
        r = c.responses.create(**ask)
        return answer(r.output_text, r.usage.input_tokens, r.usage.output_tokens)

    def pieces(out):
        with c.responses.create(**ask, stream=True) as s:
            for e in s:
                if e.type == "response.output_text.delta":
                    yield e.delta
                elif e.type in ("response.completed", "response.incomplete"):
                    out["input"], out["output"] = e.response.usage.input_tokens, e.response.usage.output_tokens

    return stream(job, pieces)


def messages(job):
    import anthropic

    c = anthropic.Anthropic(base_url=job["url"], api_key=job["key"])
    ask = dict(model=job["model"], max_tokens=job["max"], messages=[{"role": "user", "content": job["prompt"]}])
    if not job["stream"]:
        r = c.messages.create(**ask)
        return answer(r.content[0].text, r.usage.input_tokens, r.usage.output_tokens)

    def pieces(out):
        with c.messages.stream(**ask) as s:
            yield from s.text_stream
            usage = s.get_final_message().usage
            out["input"], out["output"] = usage.input_tokens, usage.output_tokens

    return stream(job, pieces)


def generate(job):
    from google import genai
    from google.genai import types

    c = genai.Client(api_key=job["key"], http_options=types.HttpOptions(base_url=job["url"]))
    ask = dict(model=job["model"], contents=job["prompt"], config=types.GenerateContentConfig(max_output_tokens=job["max"]))
    if not job["stream"]:
        r = c.models.generate_content(**ask)
        return answer(r.text, r.usage_metadata.prompt_token_count, r.usage_metadata.candidates_token_count)

    def pieces(out):
        for e in c.models.generate_content_stream(**ask):
            if e.text:
                yield e.text
            if e.usage_metadata:
                out["input"], out["output"] = e.usage_metadata.prompt_token_count, e.usage_metadata.candidates_token_count

    return stream(job, pieces)


def answer(text, used_input, used_output):
    return {"text": text, "pieces": 1, "input": used_input, "output": used_output}


def stream(job, pieces):
    """Reads a stream to its end, or leaves it after so many pieces."""
    out = {"text": "", "pieces": 0}
    texts = pieces(out)
    try:
        for text in texts:
            out["text"] += text
            out["pieces"] += 1
            if job["leave"] and out["pieces"] >= job["leave"]:
                break
    except Exception as e:
        out["error"] = failure(e)
    finally:
        texts.close()
    return out


def failure(e):
    """What an error of the SDK says to a program: its class, and what it carries."""
    out = {"type": type(e).__name__, "message": str(e), "status": 0, "code": "", "after": 0}
    out["status"] = getattr(e, "status_code", None) or (e.code if isinstance(getattr(e, "code", None), int) else 0)
    code = getattr(e, "status", None) or getattr(e, "code", None) or getattr(e, "type", None)
    out["code"] = code if isinstance(code, str) else ""
    response = getattr(e, "response", None) or getattr(e, "raw_response", None)
    headers = getattr(response, "headers", None) or {}
    if "retry-after-ms" in headers:
        out["after"] = float(headers["retry-after-ms"]) / 1000
    details = getattr(e, "details", None)
    for d in details.get("error", {}).get("details", []) if isinstance(details, dict) else []:
        if "retryDelay" in d:
            out["after"] = float(d["retryDelay"].rstrip("s"))
    return out


for line in sys.stdin:
    try:
        result = globals()[sys.argv[1]](json.loads(line))
    except Exception as e:
        result = {"error": failure(e)}
    print(json.dumps(result), flush=True)
