# SPDX-License-Identifier: Apache-2.0
"""A WebSocket client by hand, to run in a sandbox: HOST PATH TEXT... Prints the lengths of the
echoes, which must be equal to the texts."""

PROGRAM = r"""
import base64, os, socket, ssl, sys
host, path, *texts = sys.argv[1:]
s = ssl.create_default_context().wrap_socket(socket.create_connection((host, 443), 60), server_hostname=host)
f = s.makefile('rwb')
key = base64.b64encode(os.urandom(16)).decode()
f.write(f'GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n'
        f'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n'.encode())
f.flush()
status = f.readline()
assert b' 101 ' in status, status
while f.readline().strip():
    pass
def send(kind, data):
    mask = os.urandom(4)
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b'\xfe' + len(data).to_bytes(2, 'big') if len(data) < 65536 else b'\xff' + len(data).to_bytes(8, 'big')
    f.write(bytes([0x80 | kind]) + size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))
    f.flush()
lengths = []
for text in texts:
    send(1, text.encode())
    n = f.read(2)[1]
    n = int.from_bytes(f.read({126: 2, 127: 8}.get(n, 0)), 'big') if n > 125 else n
    assert f.read(n) == text.encode()
    lengths.append(n)
send(8, b'')
print(*lengths)
"""
