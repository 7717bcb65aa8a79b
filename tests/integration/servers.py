# SPDX-License-Identifier: Apache-2.0
"""Programs that listen on a port of a sandbox. They choose the port and print it."""

# Serves each connection in a thread with the function `serve`, and prints the port.
SERVER = """
import os, signal, socket, struct, sys, threading
family = socket.AF_INET6 if {six} else socket.AF_INET
listener = socket.create_server(("::1" if {six} else "127.0.0.1", 0), family=family, backlog={backlog})
def all_of(s):
    while data := s.recv(65536):
        yield data
{serve}
print(listener.getsockname()[1], flush=True)
while {accepting}:
    s = listener.accept()[0]
    threading.Thread(target=serve, args=(s,), daemon=True).start()
signal.pause()
"""
ECHO = """
def serve(s):
    with s:
        for data in all_of(s):
            s.sendall(data)
"""
DIGEST = """
import hashlib
def serve(s):
    with s:
        h = hashlib.sha256()
        for data in all_of(s):
            h.update(data)
        s.sendall(h.hexdigest().encode())
"""
FLOOD = """
def serve(s):
    while True:
        s.sendall(bytes(65536))
"""
DEAF = """
def serve(s):
    threading.Event().wait()
"""
RESET = """
def serve(s):
    s.recv(1)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()
"""
TELL = """
def serve(s):
    n = 0
    try:
        for data in all_of(s):
            n += len(data)
            print("got", n, flush=True)
        print("ended after", n, flush=True)
    except ConnectionResetError:
        print("reset", flush=True)
"""
SAYS = """
def serve(s):
    s.sendall(b"all I have to say")
    s.shutdown(socket.SHUT_WR)
    print("heard", sum(map(len, all_of(s))), flush=True)
"""


def server(serve, six=False, backlog=512, accepting=True):
    """A program for python3 -c."""
    return SERVER.format(serve=serve, six=six, backlog=backlog, accepting=accepting)
