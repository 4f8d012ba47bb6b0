"""A function of AWS Lambda that calls a language model within a quota that all copies share.

Drawgate runs beside it as an extension, and answers on the loopback interface. An invocation takes
units from the quota and holds them, calls the model, and settles with what was really used. Nothing
is left to do afterwards, because Lambda stops the processes between two invocations.
"""

import http.client
import json
import os
import secrets
import time
import urllib.error
import urllib.request
from datetime import datetime

DRAWGATE = os.environ.get("DRAWGATE_SERVER", "http://127.0.0.1:7878")
MODEL = "gemini-2.5-flash"
MODEL_URL = os.environ.get("MODEL_URL", "https://generativelanguage.googleapis.com")
OWNER = "project-1"  # whose quota it is

# Drawgate is on this machine: no proxy is asked for it, whatever HTTP_PROXY says.
beside = urllib.request.build_opener(urllib.request.ProxyHandler({}))

WAIT = 10.0  # seconds that a take may wait in the queue
HOLD = 30.0  # seconds that units are held; longer than the call takes
MARGIN = 2.0  # seconds after the take in which the call may be sent: as in drawgate.yaml
SPARE = 2.0  # seconds of an invocation that are kept for the settlement and the answer


def handler(event, context):
    end = time.monotonic() + context.get_remaining_time_in_millis() / 1000 - SPARE
    body = json.dumps({"contents": [{"role": "user", "parts": [{"text": event["prompt"]}]}]}).encode()
    wait = max(0.0, min(WAIT, (end - time.monotonic()) / 2))  # leave time for the call
    take = {
        "policy": MODEL, "key": OWNER, "costs": {"input_tokens": len(body)},  # a token has at least one byte
        "wait_ms": int(wait * 1000), "hold_ms": int(HOLD * 1000), "id": secrets.token_hex(8), "grant": secrets.token_hex(8),
    }
    try:
        granted = post("/v1/take", take, end, wait + 10)
    except Problem as problem:
        return {"status": 503, "error": str(problem)}
    except NoAnswer as error:
        settle({"take": take, "cancel": True}, end)  # it may have been granted
        return {"status": 503, "error": str(error)}
    if not granted["allowed"]:
        return {"status": 429, "retry_after_ms": granted["retry_after_ms"], "error": granted["message"]}

    outcome = {"cancel": True}  # as long as nothing was sent, nothing was used
    try:
        if late(granted):
            return {"status": 503, "error": "the call could not be sent in time"}
        outcome = {}  # from here on it may have gone out: if in doubt, the estimate counts as used
        status, text = call(body, end - time.monotonic())
        answer = json.loads(text)
        if "usageMetadata" in answer:
            outcome = {"used": {"input_tokens": answer["usageMetadata"]["promptTokenCount"]}}
        return {"status": status, "body": answer}
    except (OSError, http.client.HTTPException, ValueError) as error:
        return {"status": 503, "error": f"the model did not answer: {error}"}
    finally:
        settle({"reservation": granted["reservation"], **outcome}, end)


def late(granted):
    """Says if so much time has passed since the take that the quota's window may not fit the call any more."""
    taken = datetime.fromisoformat(granted["hold_end"]).timestamp() - HOLD  # the extension has the same clock
    return time.time() - taken > MARGIN


def call(body, timeout):
    request = urllib.request.Request(
        f"{MODEL_URL}/v1beta/models/{MODEL}:generateContent", body,
        {"Content-Type": "application/json", "X-Goog-Api-Key": os.environ["MODEL_API_KEY"]},
    )
    try:
        with urllib.request.urlopen(request, timeout=max(timeout, 0.1)) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


class Problem(Exception):
    """Drawgate could not carry out the request, and would not if it were sent again."""


class NoAnswer(Exception):
    """It is unknown whether the request was carried out."""


def post(path, body, end, timeout=10):
    """Repeats a request that got no answer, until end. This is safe for settlements, and for takes with an id and a grant."""
    request = urllib.request.Request(DRAWGATE + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    for pause in (0.1, 0.3, 1, 0):
        try:
            with beside.open(request, timeout=max(min(timeout, end - time.monotonic()), 0.1)) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code < 500:
                raise Problem(json.load(error)["detail"]) from None
            doubt = error
        except (OSError, http.client.HTTPException, ValueError) as error:
            doubt = error
        print(f"no answer to {path}: {doubt}")
        if time.monotonic() + pause > end:
            break
        time.sleep(pause)
    raise NoAnswer(f"Drawgate does not answer {path}: {doubt}") from doubt


def settle(request, end):
    """Settles or cancels. If that fails, the hold ends by itself, and its units count as used."""
    try:
        post("/v1/settle", request, end + SPARE / 2)
    except (Problem, NoAnswer) as error:
        print(f"the units count as estimated: {error}")
