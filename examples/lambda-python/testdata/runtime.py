"""Plays Lambda's runtime for Python: calls handler.handler for each invocation."""

import http.client
import json
import os
import sys
import time

sys.path.insert(0, os.environ["LAMBDA_TASK_ROOT"])
import handler  # noqa: E402

for name, value in json.loads(os.environ.get("CONSTANTS", "{}")).items():
    setattr(handler, name, value)


class Context:
    def __init__(self, headers):
        self.aws_request_id = headers["Lambda-Runtime-Aws-Request-Id"]
        self.deadline = int(headers["Lambda-Runtime-Deadline-Ms"])

    def get_remaining_time_in_millis(self):
        return max(0, self.deadline - int(time.time() * 1000))


def ask(method, path, body=None):
    connection = http.client.HTTPConnection(os.environ["AWS_LAMBDA_RUNTIME_API"])  # no timeout
    connection.request(method, "/2018-06-01/runtime/invocation/" + path, body)
    response = connection.getresponse()
    text = response.read()
    connection.close()
    return response.headers, text


while True:
    headers, event = ask("GET", "next")
    context = Context(headers)
    try:
        kind, answer = "response", handler.handler(json.loads(event), context)
    except Exception as error:
        kind, answer = "error", {"errorType": type(error).__name__, "errorMessage": str(error)}
    ask("POST", f"{context.aws_request_id}/{kind}", json.dumps(answer))
