# SPDX-License-Identifier: Apache-2.0
"""
Files of a sandbox over HTTP, byte by byte: behaviour that the SDKs do not show. tests/conformance
tests the SDKs.
"""

import base64
import contextlib
import gzip
import http.client
import json
import os
import socket
import threading
import urllib.parse

from hutchd import BoxCase
from sandbox import LONG, MACHINE, eventually, hutch

FS = "/filesystem.Filesystem/"
OCTETS = "application/octet-stream"
FORM = "multipart/form-data; boundary=xx"
MIB = 1024 * 1024
SLACK = 24 * 1024  # KiB that hutchd may grow by


def part(filename, contents, name="file"):
    head = f'--xx\r\nContent-Disposition: form-data; name="{name}"' + (f'; filename="{filename}"' if filename is not None else "")
    return head.encode() + b"\r\nContent-Type: text/plain\r\n\r\n" + contents + b"\r\n"


class FilesCase(BoxCase):
    def setUp(self):
        super().setUp()
        self.dir = f"/tmp/{self.id().rsplit('.', 1)[1]}"
        self.inside(f"mkdir -p {self.dir}")

    def query(self, path, **more):
        return "/files?" + urllib.parse.urlencode({"path": path, **more})

    def put(self, path, contents, kind=OCTETS, target=None, **headers):
        status, text = self.ask("POST", target or self.query(path), contents, Content_Type=kind, **headers)
        return status, json.loads(text)

    def get(self, path, **more):
        return self.ask("GET", self.query(path, **more))

    def stored(self, path, contents, **more):
        status, answer = self.put(path, contents, **more)
        self.assertEqual((status, answer[0]["path"]), (200, path))

    def message(self, answer):
        """The status and message of an error of /files."""
        status, body = answer
        body = json.loads(body) if isinstance(body, bytes) else body
        self.assertEqual(body["code"], status)
        return status, body["message"]


class TransferTest(FilesCase):
    def test_what_is_written_is_read(self):
        for size in (0, 1, 65535, 65536, 65537, 3 * MIB + 5):
            contents = os.urandom(size)
            self.stored(f"{self.dir}/f", contents)
            self.assertEqual(self.get(f"{self.dir}/f"), (200, contents))
        self.assertEqual(self.inside(f"stat -c '%U %a' {self.dir}/f"), b"user 644\n")

    def test_a_file_without_a_size(self):
        status, text = self.get("/proc/self/status")
        self.assertEqual(status, 200)
        self.assertIn(b"hutch-guest", text)

    def test_a_form_has_many_files_and_other_things(self):
        body = part(f"{self.dir}/a", b"1\r\n--x") + part(None, b"ignored", name="note") + part(f"{self.dir}/\u00fc %22", b"") + b"--xx--\r\n"
        status, answer = self.put("", body, FORM, "/files")
        self.assertEqual((status, [x["path"] for x in answer]), (200, [f"{self.dir}/a", f"{self.dir}/\u00fc \""]))
        self.assertEqual(self.get(f"{self.dir}/a"), (200, b"1\r\n--x"))
        self.assertEqual(self.get(f"{self.dir}/\u00fc \""), (200, b""))

    def test_files_before_an_error_in_a_form_stay(self):
        self.stored(f"{self.dir}/b", b"old")
        for rest in (part(f"{self.dir}/b", b"cut")[:-5], part(f"{self.dir}/b", b"x") + b"--xx-\r\n", part("", b"x") + b"--xx--"):
            with self.subTest(rest):
                self.inside(f"rm -f {self.dir}/a")
                self.assertEqual(self.message(self.put("", part(f"{self.dir}/a", b"1") + rest, FORM, "/files"))[0], 400)
                self.assertEqual(self.get(f"{self.dir}/a"), (200, b"1"))
        self.assertIn(self.get(f"{self.dir}/b")[1], (b"old", b"x"))
        self.assertEqual(self.inside(f"ls -A {self.dir}"), b"a\nb\n")

    def test_gzip(self):
        text = b"zip" * 100000
        packed = gzip.compress(text[:1000]) + gzip.compress(text[1000:])
        self.stored(f"{self.dir}/z", packed, Content_Encoding="gzip")
        self.assertEqual(self.get(f"{self.dir}/z"), (200, text))
        form = gzip.compress(part(f"{self.dir}/zf", text) + b"--xx--")
        self.assertEqual(self.put("", form, FORM, "/files", Content_Encoding="gzip")[0], 200)
        self.assertEqual(self.get(f"{self.dir}/zf"), (200, text))
        for wrong in (packed[:-1], packed + b"x", b"plain", b""):
            self.assertEqual(self.message(self.put(f"{self.dir}/new", wrong, Content_Encoding="gzip"))[0], 400)
        self.assertEqual(self.get(f"{self.dir}/new")[0], 404)

    def test_metadata(self):
        self.stored(f"{self.dir}/m", b"", X_Metadata_Owner="me", X_METADATA_x_y="1 2=3")
        entry = self.rpc(FS + "Stat", {"path": f"{self.dir}/m"})[1]["entry"]
        self.assertEqual(entry["metadata"], {"owner": "me", "x-y": "1 2=3"})
        self.assertEqual(self.message(self.put(f"{self.dir}/m", b"", **{"X_Metadata_": "v"}))[0], 400)

    def test_errors(self):
        self.inside(f"mkdir {self.dir}/sub; echo > {self.dir}/file; mkfifo {self.dir}/fifo; echo > {self.dir}/no; chmod 0 {self.dir}/no")
        reads = {f"{self.dir}/none": 404, self.dir: 400, f"{self.dir}/file/x": 400, f"{self.dir}/fifo": 400, "~other/x": 400,
                 "": 400, "x" * 5000: 400, f"{self.dir}/no": 403}
        for path, status in reads.items():
            self.assertEqual(self.message(self.get(path))[0], status, path)
        writes = {self.dir: 400, f"{self.dir}/sub/": 400, f"{self.dir}/file/x": 400, "/proc/none/x": 404, f"{self.dir}/fifo": 400}
        for path, status in writes.items():
            self.assertEqual(self.message(self.put(path, b"x"))[0], status, path)
        self.assertEqual(self.message(self.get("/etc/motd", username="nobody-there"))[0], 401)
        self.assertEqual(self.message(self.put(f"{self.dir}/u", b"x", target=self.query(f"{self.dir}/u", username="nobody-there")))[0], 401)
        self.assertEqual(self.message(self.put("", b"x", target="/files"))[0], 400)
        self.assertEqual(self.message(self.put(f"{self.dir}/t", b"x", "text/plain"))[0], 400)
        self.assertEqual(self.message(self.put(f"{self.dir}/t", b"x", Content_Encoding="br"))[0], 400)
        self.assertEqual(self.message(self.put("", b"--xx--", FORM, "/files"))[0], 400)
        self.assertEqual(self.message(self.ask("GET", "/files?path=%ff"))[0], 400)
        two = part("a", b"1") + part("b", b"2") + b"--xx--"
        self.assertEqual(self.message(self.put(f"{self.dir}/one", two, FORM))[0], 400)

    def test_an_error_is_seen_behind_a_large_body_and_the_connection_goes_on(self):
        with contextlib.closing(self.server.connection()) as c:
            for _ in range(2):
                c.request("POST", self.query(self.dir), bytes(8 * MIB), self.headers(Content_Type=OCTETS))
                answer = c.getresponse()
                self.assertEqual(self.message((answer.status, answer.read()))[0], 400)

    def test_a_full_disk(self):
        self.inside("echo old > /dev/shm/f")
        free = int(self.inside("df -B1 --output=avail /dev/shm | tail -1"))
        self.assertLess(free, 1024 * MIB)
        status, why = self.message(self.put("/dev/shm/f", bytes(free + MIB)))
        self.assertEqual((status, "space" in why), (507, True), why)
        self.assertEqual(self.inside("cat /dev/shm/*; ls -A /dev/shm | wc -l"), b"old\n1\n")

    def test_an_upload_that_is_cut_off_changes_nothing(self):
        self.stored(f"{self.dir}/f", b"old")
        for kind in (OCTETS, FORM):
            c = self.server.connection()
            c.putrequest("POST", self.query(f"{self.dir}/f"))
            for name, value in self.headers(Content_Type=kind, Content_Length=str(10 * MIB)).items():
                c.putheader(name, value)
            c.endheaders()
            c.send(part("f", bytes(MIB)) if kind == FORM else bytes(MIB))
            eventually(lambda: self.inside(f"ls -A {self.dir} | wc -l") == b"2\n", "a temporary file")
            c.close()
            eventually(lambda: self.inside(f"ls -A {self.dir}") == b"f\n", "the end of the temporary file")
        self.assertEqual(self.get(f"{self.dir}/f"), (200, b"old"))

    def test_no_size_takes_memory(self):
        def pieces():
            for _ in range(256):
                yield piece

        piece = os.urandom(MIB)
        self.stored(f"{self.dir}/small", piece)
        self.get(f"{self.dir}/small")
        before = self.server.memory()
        peak = [0]
        with self.watching(peak):
            self.stored(f"{self.dir}/f", pieces())  # in chunks
            with contextlib.closing(self.server.connection()) as c:
                c.request("GET", self.query(f"{self.dir}/f"), headers=self.headers())
                answer = c.getresponse()
                self.assertEqual(int(answer.headers["Content-Length"]), 256 * MIB)
                for _ in range(256):
                    self.assertEqual(answer.read(MIB), piece)
                self.assertEqual(answer.read(), b"")
        self.assertLess(peak[0] - before, SLACK)
        self.inside(f"rm {self.dir}/f")

    @contextlib.contextmanager
    def watching(self, peak):
        end = threading.Event()

        def look():
            while not end.wait(0.02):
                peak[0] = max(peak[0], self.server.memory())

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    def test_a_client_that_does_not_read_takes_no_memory(self):
        self.inside(f"head -c {64 * MIB} /dev/zero > {self.dir}/f")
        before = self.server.memory()
        slow = []
        for _ in range(8):
            c = self.server.connection()
            self.addCleanup(c.close)
            c.request("GET", self.query(f"{self.dir}/f"), headers=self.headers())
            slow.append(c)
        self.assertEqual(len(self.get(f"{self.dir}/f")[1]), 64 * MIB)  # each had enough time to read as much
        self.assertEqual(self.ask("GET", "/health")[0], 204)
        self.assertEqual(self.get("/etc/motd"), (200, b"the image\n"))
        self.assertLess(self.server.memory() - before, SLACK)
        self.assertEqual(len(slow[0].getresponse().read()), 64 * MIB)

    def test_a_file_that_grows_ends_where_it_said(self):
        self.inside(f"head -c {MIB} /dev/zero > {self.dir}/f; (while :; do head -c 100000 /dev/zero >> {self.dir}/f; done) > /dev/null 2>&1 & "
                    f"echo $! > {self.dir}/pid")
        try:
            for _ in range(20):
                with contextlib.closing(self.server.connection()) as c:
                    c.request("GET", self.query(f"{self.dir}/f"), headers=self.headers())
                    answer = c.getresponse()
                    size = int(answer.headers["Content-Length"])
                    self.assertEqual(len(answer.read()), size)
        finally:
            self.inside(f"kill $(cat {self.dir}/pid); rm {self.dir}/f")
            # The file may have filled the disk, and takes room until the last download has ended.
            eventually(lambda: int(self.inside("df --output=avail /tmp | tail -n 1")) > 1024, "room for the next test")

    def test_a_file_that_shrinks_is_cut_off(self):
        self.inside(f"truncate -s {512 * MIB} {self.dir}/f")
        with contextlib.closing(self.server.connection()) as c:
            c.request("GET", self.query(f"{self.dir}/f"), headers=self.headers())
            answer = c.getresponse()
            self.inside(f"truncate -s 0 {self.dir}/f")
            self.assertLess(self.length(answer), 512 * MIB)

    def length(self, answer):
        """The number of bytes that arrive."""
        n = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := answer.read(MIB):
                n += len(piece)
        return n

    def test_the_end_of_a_sandbox_cuts_what_is_under_way(self):
        box = self.make()
        down = self.server.connection()
        up = socket.create_connection(("127.0.0.1", self.server.port), timeout=LONG)
        self.addCleanup(down.close)
        self.addCleanup(up.close)
        self.assertEqual(hutch("exec", box[0], "--", "truncate", "-s", "512M", "/tmp/f").returncode, 0)
        down.request("GET", "/files?path=/tmp/f", headers=self.headers(box))
        answer = down.getresponse()
        head = "".join(f"{k}: {v}\r\n" for k, v in self.headers(box, Content_Type=OCTETS, Content_Length=str(1 << 40)).items())
        up.sendall(f"POST /files?path=/tmp/g HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode() + bytes(MIB))
        self.assertEqual(self.server.api("DELETE", f"/sandboxes/{box[0]}")[0], 204)
        self.assertLess(self.length(answer), 512 * MIB)
        self.assertIn(up.recv(12), (b"", b"HTTP/1.1 502"))
        self.assertEqual(self.get("/etc/motd")[0], 200)


class RestTest(FilesCase):
    def test_health_needs_no_token_and_the_rest_does(self):
        nobody = {"E2b-Sandbox-Id": self.box}
        for method, path, status in (("GET", "/health", 204), ("GET", "/envs", 401), ("GET", "/metrics", 401), ("POST", "/init", 404),
                                     ("GET", "/files?path=/etc/motd", 401), ("POST", FS + "Stat", 401)):
            with contextlib.closing(self.server.connection()) as c:
                c.request(method, path, b"{}" if method == "POST" else None, nobody)
                self.assertEqual(c.getresponse().status, status, path)
        for path in ("/init", "/freeze", "/unfreeze", "/fsfreeze", "/upgrade"):
            self.assertEqual(self.ask("POST", path, b"{}")[0], 404)

    def test_envs_and_metrics(self):
        self.assertEqual(json.loads(self.ask("GET", "/envs")[1])["A"], "b=c")
        metrics = json.loads(self.ask("GET", "/metrics")[1])
        self.assertEqual(set(metrics), {"ts", "cpu_count", "cpu_used_pct", "mem_total", "mem_used", "mem_cache", "disk_used", "disk_total"})
        self.assertEqual(metrics["mem_total"], 1024 * MIB)


class FilesystemTest(FilesCase):
    def fs(self, method, **message):
        return self.rpc(FS + method, message)

    def fails(self, method, code, **message):
        status, answer = self.fs(method, **message)
        self.assertEqual(answer.get("code"), code, (status, answer))

    def names(self, **message):
        status, answer = self.fs("ListDir", **message)
        self.assertEqual(status, 200, answer)
        return {e["path"]: e["type"].removeprefix("FILE_TYPE_") for e in answer["entries"]}

    def test_an_entry(self):
        self.inside(f"printf abc > {self.dir}/f; chmod 4751 {self.dir}/f; touch -d @1700000000.5 {self.dir}/f")
        status, answer = self.fs("Stat", path=f"{self.dir}/f")
        self.assertEqual((status, answer["entry"]), (200, {
            "name": "f", "type": "FILE_TYPE_FILE", "path": f"{self.dir}/f", "size": "3", "mode": 0o751, "permissions": "urwxr-x--x",
            "owner": "user", "group": "user", "modifiedTime": "2023-11-14T22:13:20.500000000Z"}))
        entry = self.fs("Stat", path="/tmp")[1]["entry"]
        self.assertEqual((entry["type"], entry["permissions"], entry["owner"]), ("FILE_TYPE_DIRECTORY", "dtrwxrwxrwx", "root"))
        self.assertEqual(self.fs("Stat", path="/")[1]["entry"]["name"], "/")
        self.assertEqual(self.fs("Stat", path="/dev/null")[1]["entry"]["type"], "FILE_TYPE_UNSPECIFIED")

    def test_links(self):
        self.inside(f"cd {self.dir}; mkdir d; echo > d/in; ln -s d to-d; ln -s nowhere broken; ln -s loop loop")
        self.assertEqual(self.names(path=self.dir, depth=9), {
            f"{self.dir}/d": "DIRECTORY", f"{self.dir}/d/in": "FILE", f"{self.dir}/to-d": "DIRECTORY",
            f"{self.dir}/broken": "UNSPECIFIED", f"{self.dir}/loop": "UNSPECIFIED"})
        self.assertEqual(self.names(path=f"{self.dir}/to-d/"), {f"{self.dir}/to-d/in": "FILE"})
        entry = self.fs("Stat", path=f"{self.dir}/to-d")[1]["entry"]
        self.assertEqual((entry["symlinkTarget"], entry["permissions"], entry["type"]), (f"{self.dir}/d", "Lrwxrwxrwx", "FILE_TYPE_DIRECTORY"))

    def test_paths_from_the_home(self):
        self.inside("mkdir -p ~/deep/er; echo > ~/deep/f")
        want = {"/home/user/deep/er": "DIRECTORY", "/home/user/deep/f": "FILE"}
        self.assertEqual(self.names(path="deep"), want)
        self.assertEqual(self.names(path="~/deep"), want)
        self.assertIn("/home/user/deep", self.names(path=""))
        self.assertIn("/root/.profile", self.names_as("root", path="~"))
        self.inside("rm -r ~/deep")

    def names_as(self, user, **message):
        basic = "Basic " + base64.b64encode(f"{user}:".encode()).decode()
        return {e["path"] for e in self.rpc(FS + "ListDir", message, Authorization=basic)[1]["entries"]}

    def test_names_that_are_no_text(self):
        self.inside(f"cd {self.dir}; touch \"$(printf 'a\\377b')\" \"$(printf 'n\\nl')\" \"$(printf 'q\\042\\033')\"")
        self.assertEqual(set(self.names(path=self.dir)), {f"{self.dir}/a?b", f"{self.dir}/n\nl", f"{self.dir}/q\"\x1b"})

    def test_a_large_directory(self):
        self.inside(f"cd {self.dir}; seq -f 'a-name-that-is-not-short-%g' 1 20000 | xargs touch")
        self.assertEqual(len(self.names(path=self.dir)), 20000)
        self.assertEqual(self.fs("Remove", path=self.dir), (200, {}))

    def test_depth(self):
        self.inside(f"cd {self.dir}; mkdir -p 1/2/3")
        self.assertEqual(len(self.names(path=self.dir)), 1)
        self.assertEqual(len(self.names(path=self.dir, depth=0)), 1)
        self.assertEqual(len(self.names(path=self.dir, depth=None)), 1)
        self.assertEqual(len(self.names(path=self.dir, depth=64)), 3)
        for depth in (-1, 65, 1 << 40, "1", 1.5):
            self.fails("ListDir", "invalid_argument", path=self.dir, depth=depth)

    def test_directories(self):
        status, answer = self.fs("MakeDir", path=f"{self.dir}/a/b/")
        self.assertEqual((status, answer["entry"]["path"], answer["entry"]["name"]), (200, f"{self.dir}/a/b", "b"))
        self.fails("MakeDir", "already_exists", path=f"{self.dir}/a/b")
        self.fails("MakeDir", "already_exists", path=f"{self.dir}/a/b/")
        self.inside(f"echo > {self.dir}/f; ln -s nowhere {self.dir}/l; ln -s a {self.dir}/la")
        self.fails("MakeDir", "invalid_argument", path=f"{self.dir}/f")
        self.fails("MakeDir", "invalid_argument", path=f"{self.dir}/f/x")
        self.fails("MakeDir", "invalid_argument", path=f"{self.dir}/l")
        self.fails("MakeDir", "already_exists", path=f"{self.dir}/la")
        self.fails("MakeDir", "permission_denied", path="/root/x")

    def test_move_and_remove(self):
        self.inside(f"mkdir -p {self.dir}/a; echo 1 > {self.dir}/a/f")
        status, answer = self.fs("Move", source=f"{self.dir}/a", destination=f"{self.dir}/x/y/z")
        self.assertEqual((status, answer["entry"]["path"]), (200, f"{self.dir}/x/y/z"))
        self.assertEqual(self.inside(f"cat {self.dir}/x/y/z/f"), b"1\n")
        self.fails("Move", "not_found", source=f"{self.dir}/none", destination=f"{self.dir}/b")
        self.assertEqual(self.fs("Remove", path=f"{self.dir}/x"), (200, {}))
        self.assertEqual(self.fs("Remove", path=f"{self.dir}/x"), (200, {}))
        self.fails("Remove", "invalid_argument", path="/")
        self.fails("Remove", "permission_denied", path="/etc/passwd")

    def test_what_is_wrong(self):
        self.inside(f"echo > {self.dir}/f")
        self.fails("Stat", "not_found", path=f"{self.dir}/none")
        self.fails("Stat", "invalid_argument", path=7)
        self.fails("Stat", "invalid_argument", path="x" * 5000)
        self.fails("Stat", "invalid_argument", path="~other")
        self.fails("ListDir", "not_found", path=f"{self.dir}/none")
        self.fails("ListDir", "invalid_argument", path=f"{self.dir}/f")
        status, answer = self.rpc(FS + "Stat", {"path": "/"}, Authorization="Basic bm9ib2R5LXRoZXJlOg==")
        self.assertEqual((status, answer["code"]), (401, "unauthenticated"))
        status, answer = self.rpc(FS + "Stat", {"path": "/"}, Authorization="Basic ?")
        self.assertEqual((status, answer["code"]), (401, "unauthenticated"))
        self.assertEqual(self.ask("POST", FS + "Stat", b"{}", Content_Type="application/connect+json")[0], 415)
        self.assertEqual(self.ask("POST", FS + "Nothing", b"{}", Content_Type="application/json")[0], 404)


class WatchTest(FilesCase):
    def watch(self, **message):
        return self.stream(FS + "WatchDir", {"path": self.dir, **message})

    def started(self, **message):
        messages = self.watch(**message)
        self.assertEqual(next(messages), {"start": {}})
        return messages

    def until(self, messages, kind, name):
        for message in messages:
            event = message["filesystem"]
            if (event["type"], event["name"]) == (f"EVENT_TYPE_{kind}", name):
                return event
        self.fail(f"no {kind} of {name}: {messages.trailer}")

    def code(self, messages):
        for _ in messages:
            pass
        return messages.trailer.get("error", {}).get("code")

    def test_each_kind(self):
        events = self.started()
        self.inside(f"cd {self.dir}; echo > f; chmod 600 f; mv f g; rm g")
        for kind, name in (("CREATE", "f"), ("WRITE", "f"), ("CHMOD", "f"), ("RENAME", "f"), ("CREATE", "g"), ("REMOVE", "g")):
            self.assertNotIn("entry", self.until(events, kind, name))

    def test_entries(self):
        self.inside("mkdir ~/w")
        events = self.stream(FS + "WatchDir", {"path": "w", "includeEntry": True, "recursive": True})
        next(events)
        self.inside("mkdir ~/w/d")
        self.until(events, "CREATE", "d")  # d is watched by now
        self.inside("printf abc > ~/w/d/f; rm ~/w/d/f")
        entry = self.until(events, "WRITE", "d/f").get("entry")
        if entry:  # it may be gone by then
            self.assertEqual((entry["path"], entry["type"], entry["owner"]), ("/home/user/w/d/f", "FILE_TYPE_FILE", "user"))
        self.assertEqual(self.until(events, "REMOVE", "d/f"), {"name": "d/f", "type": "EVENT_TYPE_REMOVE"})
        self.inside("rm -r ~/w")

    def test_errors_are_in_the_last_envelope(self):
        self.inside(f"echo > {self.dir}/f")
        self.assertEqual(self.code(self.watch(path=f"{self.dir}/none")), "not_found")
        self.assertEqual(self.code(self.watch(path=f"{self.dir}/f")), "invalid_argument")
        self.assertEqual(self.rpc(FS + "CreateWatcher", {"path": f"{self.dir}/none"})[1]["code"], "not_found")

    def test_a_directory_that_goes_and_one_that_comes_in_its_place(self):
        events = self.started()
        self.inside(f"mkdir {self.dir}.new && mv -T {self.dir}.new {self.dir}")  # the directory exists at any time
        seen = threading.Event()

        def write():  # the new watch may start only after the first write
            while not seen.wait(0.1):
                self.inside(f"rm -f {self.dir}/f; echo > {self.dir}/f")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            while next(events)["filesystem"]["name"] != "f":
                pass
        finally:
            seen.set()
            writer.join()
        self.inside(f"rm -r {self.dir}")
        self.assertEqual(self.code(events), "not_found")

    def test_a_client_that_does_not_read_loses_its_stream(self):
        before = self.server.memory()
        events = self.started()
        self.inside(f"cd {self.dir}; i=0; while [ $i -lt 30 ]; do seq -f 'a-name-that-is-quite-long-so-that-much-is-said-%g' 1 1000 | xargs touch;"
                    " ls | xargs rm; i=$((i+1)); done", timeout=4 * LONG)
        self.assertLess(self.server.memory() - before, SLACK)
        try:
            self.assertIn(self.code(events), ("resource_exhausted", "internal"))
        except http.client.IncompleteRead:
            self.assertTrue(MACHINE, "cut off")  # it took minutes without a read, and hutchd closed the connection

    def test_a_watch_that_is_polled(self):
        status, answer = self.rpc(FS + "CreateWatcher", {"path": self.dir})
        self.assertEqual(status, 200)
        ask = {"watcherId": answer["watcherId"]}
        self.assertEqual(self.rpc(FS + "GetWatcherEvents", ask), (200, {"events": []}))
        self.inside(f"echo > {self.dir}/f")
        seen = []

        def saw(kind):
            seen.extend(self.rpc(FS + "GetWatcherEvents", ask)[1]["events"])
            return {"name": "f", "type": f"EVENT_TYPE_{kind}"} in seen

        eventually(lambda: saw("CREATE"), "the file")
        # More events than are kept, with no client asking: the loss is reported once, then events
        # continue.
        def lost():
            self.inside(f"cd {self.dir}; seq 1 5000 | xargs touch")
            return self.rpc(FS + "GetWatcherEvents", ask)[1].get("code") == "resource_exhausted"

        eventually(lost, "the loss of events")
        self.inside(f"rm {self.dir}/f")
        eventually(lambda: saw("REMOVE"), "the end of the file")
        self.assertEqual(self.rpc(FS + "RemoveWatcher", ask), (200, {}))
        for method in ("RemoveWatcher", "GetWatcherEvents"):
            self.assertEqual(self.rpc(FS + method, ask)[1]["code"], "not_found")

    def test_there_are_only_so_many(self):
        made = [self.rpc(FS + "CreateWatcher", {"path": self.dir})[1].get("watcherId") for _ in range(64)]
        self.assertEqual(len(set(made)), 64)
        self.assertEqual(self.rpc(FS + "CreateWatcher", {"path": self.dir})[1]["code"], "resource_exhausted")
        for name in made:
            self.assertEqual(self.rpc(FS + "RemoveWatcher", {"watcherId": name})[0], 200)

    def test_watches_end_with_their_sandbox(self):
        box = self.make()
        with contextlib.closing(self.server.connection()) as c:
            c.request("POST", FS + "CreateWatcher", b'{"path":"/tmp"}', self.headers(box, Content_Type="application/json"))
            self.assertEqual(c.getresponse().status, 200)
        events = self.stream(FS + "WatchDir", {"path": "/tmp"}, E2b_Sandbox_Id=box[0], X_Access_Token=box[1])
        next(events)
        self.assertEqual(self.server.api("DELETE", f"/sandboxes/{box[0]}")[0], 204)
        with self.assertRaises(Exception) as caught:
            self.code(events)
        self.assertIn(type(caught.exception).__name__, ("IncompleteRead", "EOFError", "ConnectionResetError"))


del FilesCase
