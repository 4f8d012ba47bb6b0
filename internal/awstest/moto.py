"""moto as one server on one port, which handles one request at a time: its conditional updates are
not atomic when several threads run them."""

import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

app = DomainDispatcherApplication(create_backend_app)
lock = threading.Lock()


def one_at_a_time(environ, start_response):
    with lock:
        return list(app(environ, start_response))


class Handler(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"  # clients keep their connections

    def log_request(self, *args):
        pass


server = make_server("127.0.0.1", 0, one_at_a_time, threaded=True, request_handler=Handler)
print(f"listening on {server.port}", flush=True)
server.serve_forever()
