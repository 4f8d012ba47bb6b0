"""The official SDKs, and a chat model of LangChain, through the gateway, with the simulator behind it.

What is changed is one line: where the client finds its server.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from conftest import Server
from google import genai
from google.genai import types
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from drawgate import Limiter
from drawgate.langchain import RateLimiter

KEY = "vk-alice-0123456789"
ANSWER = "the gate lets some water pass and then"
QUESTION: Any = [{"role": "user", "content": "How does a lock work?"}]


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[str]:
    """Runs a server of drawgate. The value is its address."""
    process = subprocess.Popen(
        [os.environ["DRAWGATE_PROGRAM"], *arguments], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    reader = threading.Thread(target=process.stderr.read)
    try:
        for line in process.stderr:
            if m := re.search(r"listening on (http://[0-9.:]+)", line):
                break
        else:
            raise RuntimeError("it does not start")
        reader.start()
        yield m[1]
    finally:
        process.kill()
        process.wait()
        if reader.ident:
            reader.join()
        process.stderr.close()


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("provider"), "simulate", "--listen", "127.0.0.1:0") as url:
        yield url


@pytest.fixture
def gateway(tmp_path: Path, provider: str) -> Iterator[str]:
    (tmp_path / "alice.key").write_text(KEY)
    upstream = f'{{url: "{provider}", models: [{{model: "*", policy: provider}}]}}'
    (tmp_path / "drawgate.yaml").write_text(
        f"""
store: "memory:"
policies: {{provider: {{limits: [{{name: calls, rolling: 1h, amount: 2}}]}}}}
gateway:
  upstreams: {{openai: {upstream}, anthropic: {upstream}, gemini: {upstream}}}
  keys: [{{name: alice, secret_file: alice.key}}]
"""
    )
    with running(tmp_path, "gateway", "--config", "drawgate.yaml", "--listen", "127.0.0.1:0") as url:
        yield url


def test_openai(gateway: str) -> None:
    """req: B11."""
    client = openai.OpenAI(base_url=gateway + "/openai/v1", api_key=KEY)
    ask: Any = {"model": "gpt-4.1-mini", "max_tokens": 8, "messages": QUESTION}
    assert client.chat.completions.create(**ask).choices[0].message.content == ANSWER
    pieces = [c.choices[0].delta.content or "" for c in client.chat.completions.create(**ask, stream=True) if c.choices]
    assert "".join(pieces) == ANSWER
    with pytest.raises(openai.RateLimitError, match='limit "calls" of policy "provider"'):
        client.chat.completions.create(**ask)
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="vk-a-guess").chat.completions.create(**ask)


def test_anthropic(gateway: str) -> None:
    """req: B11."""
    client = anthropic.Anthropic(base_url=gateway + "/anthropic", api_key=KEY)
    ask: Any = {"model": "claude-sonnet-4-6", "max_tokens": 8, "messages": QUESTION}
    assert client.messages.create(**ask).content[0].text == ANSWER
    with client.messages.stream(**ask) as stream:
        assert "".join(stream.text_stream) == ANSWER
    with pytest.raises(anthropic.RateLimitError, match='limit "calls" of policy "provider"'):
        client.messages.create(**ask)


def test_google(gateway: str) -> None:
    """req: B11."""
    client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=gateway + "/gemini"))
    ask: Any = {
        "model": "gemini-2.5-flash-lite",
        "contents": "How does a lock work?",
        "config": types.GenerateContentConfig(max_output_tokens=8),
    }
    assert client.models.generate_content(**ask).text == ANSWER
    assert "".join(chunk.text or "" for chunk in client.models.generate_content_stream(**ask)) == ANSWER
    with pytest.raises(genai.errors.ClientError, match='limit "calls" of policy "provider"'):
        client.models.generate_content(**ask)
    client.close()


def chat(url: str, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model="gpt-4.1-mini", max_completion_tokens=8, base_url=url + "/v1", api_key=SecretStr(KEY), **options
    )


def test_langchain_through_the_gateway(gateway: str) -> None:
    """req: B11 C6."""
    model = chat(gateway + "/openai")
    assert model.invoke("How does a lock work?").content == ANSWER
    assert "".join(str(c.content) for c in model.stream("How does a lock work?")) == ANSWER
    with pytest.raises(openai.RateLimitError):
        model.invoke("How does a lock work?")


def test_langchain_with_the_rate_limiter(server: Server, limiter: Limiter, key: str, provider: str) -> None:
    """What the provider reports counts, of whole answers and of streams. req: C6."""
    rate = RateLimiter("llm", key=key, limiter=limiter, costs={"tokens": lambda call: call.estimate(1000)})
    model = chat(provider, rate_limiter=rate, max_retries=0, stream_usage=True)
    before = reported(provider)
    model.batch(["How does a lock work?", "And a key?"])
    list(model.stream("And a door?"))

    async def main() -> None:
        await asyncio.gather(*(model.ainvoke(f"Question {n}") for n in range(5)))
        async for _ in model.astream("And a window?"):
            pass

    asyncio.run(main())
    limiter.close()
    assert server.used("llm", key) == {"rpm": 9, "tpm": reported(provider) - before}
    assert server.status("llm", key)["open"] == 0

    with pytest.raises(openai.APIConnectionError):
        chat("http://127.0.0.1:9", rate_limiter=rate, max_retries=0).invoke("Nobody hears this")
    with pytest.raises(openai.NotFoundError):
        chat(provider + "/nothing", rate_limiter=rate, max_retries=0).invoke("Nobody hears this")
    limiter.close()
    assert server.used("llm", key)["rpm"] == 10  # a call that was sent counts


def reported(provider: str) -> int:
    """Returns how many tokens the provider has counted."""
    calls = httpx.get(provider + "/simulator/ledger", timeout=60).json()["calls"]
    return sum(c["input"] + c["output"] for c in calls)
