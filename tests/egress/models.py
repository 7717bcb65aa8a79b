# SPDX-License-Identifier: Apache-2.0
"""
Scripted model providers, for the servers of origin.py: Anthropic's messages, OpenAI's responses (by
server-sent events and WebSocket) and Gemini's generateContent. A model's whole behaviour is a task
of two steps, carried out with the tools that the agent program offers:

    the user's prompt   -> write FILE, with the program's tool for files
    result of the write -> run COMMAND, with its tool for commands
    result of the run   -> say DONE

Requests without such tools (titles, routing) get a short text, or an instance of the JSON schema
that they ask for. reply() returns None for a request that is for no model.

"usage: IN CACHED OUT" in a request chooses the usage of its answer, "pieces: N" the number of events
with 40 bytes of text each.
"""

import json
import os
import re

FILE, CONTENT, COMMAND, DONE = "NOTES.md", "written by the scripted model\n", "wc -c NOTES.md > COUNTED", "SCRIPT-DONE"
WRITE = ("apply_patch", "write", "write_file", "create_file", "edit")
SHELL = ("exec_command", "shell_command", "shell", "bash", "run_shell_command", "run_command")
# How programs name the parameters of these tools.
PARAMETERS = {"path": ("file_path", "filepath", "path", "absolute_path"), "content": ("content", "contents", "text"), "command": ("command", "cmd")}
PATCH = f"*** Begin Patch\n*** Add File: {FILE}\n+{CONTENT}*** End Patch"
# Their prompts name the working directory.
DIRECTORY = (r"<cwd>([^<]+)</cwd>", r"[Ww]orking directory[^:\n]{0,40}: *`?(/[^\s`<\"\\]*)", r"- (/workspace[^\s\\]*)")


class Tool:
    def __init__(self, name, schema=None, custom=False):
        self.name, self.schema, self.custom = name, schema or {}, custom

    def arguments(self, **values):
        """Fills in the parameters under the tool's own names; required ones get some value."""
        known = self.schema.get("properties") or {}
        found = {k: instance(known.get(k, {})) for k in self.schema.get("required", [])}
        for what, value in values.items():
            for name, schema in known.items():
                if name.lower().replace("_", "") in [p.replace("_", "") for p in PARAMETERS[what]]:
                    found[name] = ["sh", "-c", value] if "array" in str(schema.get("type")).lower() else value
        return found


def instance(schema):
    """A small instance of a JSON schema."""
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return instance(schema[key][0])
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = str(kind[0] if isinstance(kind, list) else kind).lower()
    if kind == "object":
        known = schema.get("properties", {})
        return {k: instance(known.get(k, {})) for k in schema.get("required", known)}
    return {"array": [], "integer": 1, "number": 1, "boolean": False}.get(kind, "scripted")


def tools_of(listed):
    """The tools of any of the three APIs."""
    for t in listed or []:
        if t.get("type") == "namespace":
            yield from tools_of(t.get("tools"))
        elif "functionDeclarations" in t:
            for f in t["functionDeclarations"]:
                yield Tool(f["name"], f.get("parametersJsonSchema") or f.get("parameters"))
        elif t.get("name"):
            yield Tool(t["name"], t.get("parameters") or t.get("input_schema"), t.get("type") == "custom")


def pick(tools, names):
    by_name = {t.name.lower(): t for t in tools}
    return next((by_name[n] for n in names if n in by_name), None)


def directory(text):
    for pattern in DIRECTORY:
        if found := re.search(pattern, text):
            return found[1].rstrip(".")
    return "/workspace"


def plan(tools, step, text, schema=None):
    """The model's next move: ("say", text) or ("call", tool, its arguments or its free text)."""
    tools = list(tools)
    code, write, shell = pick(tools, ("exec",)), pick(tools, WRITE), pick(tools, SHELL)
    if schema:
        return "say", json.dumps(instance(schema))
    if not tools or not (code or shell):
        return "say", "scripted"
    if step >= 2:
        return "say", DONE
    if code and code.custom and not (write and shell):  # codex: one tool that runs JavaScript with the others
        call = f"apply_patch({json.dumps(PATCH)})" if step == 0 else f"exec_command({{cmd: {json.dumps(COMMAND)}}})"
        return "call", code, f"const r = await tools.{call};\ntext(r);\n"
    if step == 1:
        return "call", shell, shell.arguments(command=COMMAND)
    if write and write.custom:
        return "call", write, PATCH
    if write:
        return "call", write, write.arguments(path=os.path.join(directory(text), FILE), content=CONTENT)
    return "call", shell, shell.arguments(command=f"printf '%s' '{CONTENT}' > {FILE}")


def usage(body):
    """Tokens: input that no cache had, input of a cache, output."""
    found = re.search(r"usage: (\d+) (\d+) (\d+)", json.dumps(body))
    return tuple(map(int, found.groups())) if found else (1000, 0, 20)


def pieces(body, text):
    found = re.search(r"pieces: (\d+)", json.dumps(body))
    return ["0123456789" * 4] * int(found[1]) if found else [text]


def ident(prefix):
    return prefix + os.urandom(12).hex()


# ---- Anthropic ----
def anthropic(body):
    """Returns (events, whole answer, last step)."""
    step = 0
    for m in body["messages"]:
        results = [c for c in m["content"] if c.get("type") == "tool_result"] if isinstance(m["content"], list) else []
        if m["role"] == "user":
            step = step + len(results) if results else 0
    schema = ((body.get("output_config") or {}).get("format") or {}).get("schema")
    move = plan(tools_of(body.get("tools")), step, json.dumps([body.get("system"), body["messages"]]).replace("\\n", "\n"), schema)
    if move[0] == "say":
        block, why, delta = {"type": "text", "text": move[1]}, "end_turn", {"type": "text_delta", "text": move[1]}
        empty = {"type": "text", "text": ""}
    else:
        block, why = {"type": "tool_use", "id": ident("toolu_"), "name": move[1].name, "input": move[2]}, "tool_use"
        empty, delta = {**block, "input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(move[2])}
    used = usage(body)
    whole = {"id": ident("msg_"), "type": "message", "role": "assistant", "model": body.get("model"), "stop_reason": why, "stop_sequence": None,
             "content": [block], "usage": {"input_tokens": used[0], "cache_read_input_tokens": used[1], "output_tokens": used[2]}}
    deltas = [{"type": "text_delta", "text": p} for p in pieces(body, move[1])] if move[0] == "say" else [delta]
    events = [{"type": "message_start", "message": {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}},
              {"type": "content_block_start", "index": 0, "content_block": empty}, {"type": "ping"},
              *({"type": "content_block_delta", "index": 0, "delta": d} for d in deltas), {"type": "content_block_stop", "index": 0},
              {"type": "message_delta", "delta": {"stop_reason": why, "stop_sequence": None}, "usage": {"output_tokens": used[2]}},
              {"type": "message_stop"}]
    return events, whole, move == ("say", DONE)


# ---- OpenAI ----
class Responses:
    """Over a WebSocket, a request has only the new items and the id of the response before."""

    def __init__(self):
        self.before = {}

    def look(self, body):
        """Returns (tools, step)."""
        tools, step = self.before.get(body.get("previous_response_id"), ([], 0))
        items = [i for i in body["input"] if isinstance(i, dict)] if isinstance(body["input"], list) else [{"role": "user"}]
        inside = [t for i in items for t in i.get("tools") or []]
        tools = list(tools_of(body.get("tools"))) or list(tools_of(inside)) or tools
        for i in items:
            step = 0 if i.get("role") == "user" else step + str(i.get("type", "")).endswith("call_output")
        return tools, step

    def __call__(self, body):
        tools, step = self.look(body)
        schema = ((body.get("text") or {}).get("format") or {}).get("schema")
        move = plan(tools, step, json.dumps(body["input"]), schema) if body.get("generate") is not False else None
        base = {"id": ident("resp_"), "object": "response", "created_at": 1, "model": body.get("model"), "status": "in_progress", "output": []}
        self.before[base["id"]] = (tools, step)
        events = [{"type": "response.created", "response": base}]
        item = self.item(move) if move else None
        if item:
            events.append({"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress"}})
            if move[0] == "say":
                events += [{"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "item_id": item["id"], "delta": p}
                           for p in pieces(body, move[1])]
            events.append({"type": "response.output_item.done", "output_index": 0, "item": item})
        fresh, cached, out = usage(body)
        used = {"input_tokens": fresh + cached, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": out,
                "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": fresh + cached + out}
        whole = {**base, "status": "completed", "output": [item] if item else [], "usage": used}
        events.append({"type": "response.completed", "response": whole})
        return [{**e, "sequence_number": n} for n, e in enumerate(events)], whole, move == ("say", DONE)

    def item(self, move):
        if move[0] == "say":
            return {"type": "message", "id": ident("msg_"), "role": "assistant", "status": "completed",
                    "content": [{"type": "output_text", "text": move[1], "annotations": []}]}
        call = {"status": "completed", "call_id": ident("call_"), "name": move[1].name}
        if move[1].custom:
            return {"type": "custom_tool_call", "id": ident("ctc_"), **call, "input": move[2]}
        return {"type": "function_call", "id": ident("fc_"), **call, "arguments": json.dumps(move[2])}


responses = Responses()


def chat(body):
    fresh, cached, out = usage(body)
    used = {"prompt_tokens": fresh + cached, "completion_tokens": out, "total_tokens": fresh + cached + out,
            "prompt_tokens_details": {"cached_tokens": cached}}
    base = {"id": ident("chatcmpl-"), "object": "chat.completion", "created": 1, "model": body.get("model")}
    whole = {**base, "choices": [{"index": 0, "message": {"role": "assistant", "content": "scripted"}, "finish_reason": "stop"}], "usage": used}
    base["object"] = "chat.completion.chunk"
    events = [{**base, "choices": [{"index": 0, "delta": {"content": p}, "finish_reason": None}]} for p in pieces(body, "scripted")]
    events.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    if (body.get("stream_options") or {}).get("include_usage"):
        events.append({**base, "choices": [], "usage": used})
    return [*events, "[DONE]"], whole, False


# ---- Gemini ----
def gemini(body):
    step = 0
    for c in body["contents"]:
        results = [p for p in c.get("parts", []) if "functionResponse" in p]
        if results or c.get("role") == "user":
            step = step + len(results) if results else 0
    conf = body.get("generationConfig") or {}
    schema = conf.get("responseJsonSchema") or conf.get("responseSchema")
    move = plan(tools_of(body.get("tools")), step, json.dumps(body).replace("\\n", "\n"), schema)
    part = {"text": move[1]} if move[0] == "say" else {"functionCall": {"name": move[1].name, "args": move[2]}}
    fresh, cached, out = usage(body)
    whole = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
             "usageMetadata": {"promptTokenCount": fresh + cached, "cachedContentTokenCount": cached, "candidatesTokenCount": out - out // 3,
                               "thoughtsTokenCount": out // 3, "totalTokenCount": fresh + cached + out}, "responseId": ident("g")}
    return [whole], whole, move == ("say", DONE)


def reply(path, text):
    """Returns (events, whole answer, whether this ends the task, whether events have names)."""
    try:
        body = json.loads(text)
    except ValueError:
        return None
    if path.startswith("/v1/messages") and "messages" in body and "count_tokens" not in path:
        return *anthropic(body), True
    if path.startswith("/v1/responses") and "input" in body:
        return *responses(body), True
    if path.startswith("/v1/chat/completions") and "messages" in body:
        return *chat(body), False
    if "enerateContent" in path and "contents" in body:
        return *gemini(body), False
    return None


def wants_stream(path, text):
    return "streamGenerateContent" in path or json.loads(text).get("stream") is True
