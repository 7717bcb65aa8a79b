# SPDX-License-Identifier: Apache-2.0
"""
grpc_server.py ADDRESS CERTIFICATE KEY LOG: a server of Debian's python3-grpcio, with messages of
bytes. It appends a line of JSON for each call: its method, its metadata, and whether it
began or ended.

  Unary    "got MESSAGE"; the number of its bytes in the trailer x-count
  Count    N messages for the message N
  Chat     an answer to each message, as it arrives
  Sum      the number of bytes of all messages
  Reflect  the value of authorization as a message and in a trailer
  Fail     NOT_FOUND
  Wait     one message, and then nothing until the client ends the call
"""

import json
import sys
import threading
from concurrent import futures

import grpc


class Calls(grpc.GenericRpcHandler):
    def __init__(self, log):
        self.log, self.lock = log, threading.Lock()

    def service(self, call):
        kind = call.method.rpartition("/")[2]
        make = {"Unary": grpc.unary_unary_rpc_method_handler, "Count": grpc.unary_stream_rpc_method_handler,
                "Chat": grpc.stream_stream_rpc_method_handler, "Sum": grpc.stream_unary_rpc_method_handler,
                "Reflect": grpc.unary_unary_rpc_method_handler, "Fail": grpc.unary_unary_rpc_method_handler,
                "Wait": grpc.unary_stream_rpc_method_handler}.get(kind)
        note = {"method": call.method, "metadata": [[k, v if isinstance(v, str) else v.decode("latin-1")] for k, v in call.invocation_metadata]}
        self.write({**note, "event": "begin"})
        return make and make(lambda message, context: self.answer(kind, note, message, context))

    def write(self, note):
        with self.lock, open(self.log, "a") as f:
            f.write(json.dumps(note) + "\n")

    def answer(self, kind, note, message, context):
        context.add_callback(lambda: self.write({**note, "event": "end"}))
        return getattr(self, kind)(message, context, dict(note["metadata"]))

    def Unary(self, message, context, _):
        context.send_initial_metadata((("x-first", "yes"),))
        context.set_trailing_metadata((("x-count", str(len(message))),))
        return b"got " + message

    def Count(self, message, *_):
        return (b"%d" % i for i in range(int(message)))

    def Chat(self, messages, *_):
        return (b"heard " + m for m in messages)

    def Sum(self, messages, *_):
        return b"%d" % sum(len(m) for m in messages)

    def Reflect(self, _, context, metadata):
        context.set_trailing_metadata((("x-reflected", metadata.get("authorization", "")),))
        return f"before {metadata.get('authorization', '')} after".encode()

    def Fail(self, message, context, _):
        context.abort(grpc.StatusCode.NOT_FOUND, f"no {message.decode()} here")

    def Wait(self, _, context, __):
        yield b"waiting"
        over = threading.Event()
        context.add_callback(over.set)
        over.wait()


def main(address, certificate, key, log):
    with open(certificate, "rb") as c, open(key, "rb") as k:
        credentials = grpc.ssl_server_credentials([(k.read(), c.read())])
    server = grpc.server(futures.ThreadPoolExecutor(32))
    server.add_generic_rpc_handlers((Calls(log),))
    server.add_secure_port(f"{address}:443", credentials)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(*sys.argv[1:])
