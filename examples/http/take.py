"""Waits, holds an estimate and settles what was used, over HTTP, with the standard library.

For the server and the policies of docs/http.md. A test runs it while answers are lost.
"""

import http.client
import json
import secrets
import time
import urllib.error
import urllib.request

BASE = "http://127.0.0.1:7878"


class Problem(Exception):
    """The request could not be answered. code says why, for programs."""

    def __init__(self, body):
        super().__init__(f"{body['detail']} ({body['code']})")
        self.code = body["code"]


class NoAnswer(Exception):
    """It is unknown whether the request was carried out."""


def post(path, body, timeout=10):
    """Repeats a request that got no answer. This is safe for settlements, and for takes with an id and a grant."""
    request = urllib.request.Request(BASE + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    for pause in (0.2, 0.5, 1, 0):
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise Problem(json.load(error)) from None
            doubt = error  # store_unavailable, closing, or a proxy that got no answer itself
        except (OSError, http.client.HTTPException, ValueError) as error:
            doubt = error
        time.sleep(pause)
    raise NoAnswer(f"{path}: {doubt}") from doubt


# Wait for up to 20 s, hold an estimate for 30 s. The id says what the units are for.
# The grant is chosen once for this take, and is the same whenever it is sent.
take = {
    "policy": "llm",
    "key": "team-a",
    "costs": {"tokens": 400},
    "wait_ms": 20_000,
    "hold_ms": 30_000,
    "id": "report-17",
    "grant": secrets.token_hex(8),
}
answer = post("/v1/take", take, timeout=30)  # longer than the wait
if not answer["allowed"]:
    print("refused:", answer["message"])
    print("again in", answer["retry_after_ms"] / 1000, "s")
else:
    outcome = {"cancel": True}  # as long as nothing was sent, nothing was used
    try:
        prompt = "Summarise the report."  # prepare the call here
        outcome = {}  # from here on it may have gone out: if in doubt, the estimate counts as used
        used = 321  # call the model here
        outcome = {"used": {"tokens": used}}
    finally:
        print(post("/v1/settle", {"reservation": answer["reservation"], **outcome})["outcome"])
