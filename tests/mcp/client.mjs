// SPDX-License-Identifier: Apache-2.0
// client.mjs CONFIG: runs the official MCP client against our server. CONFIG is JSON: {"command",
// "args", "env"} for stdio, or {"url", "key"} for HTTP. Prints a line of TAP for each test, and
// "done" at the end.
import assert from 'node:assert/strict'
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'

const config = JSON.parse(process.argv[2])
const TOOLS = ['run_command', 'run_code', 'read_file', 'write_file', 'list_files', 'create_sandbox', 'list_sandboxes', 'kill_sandbox']
const LIMIT = 64 * 1024

function transport() {
  if (config.url) {
    return new StreamableHTTPClientTransport(new URL(config.url), { requestInit: { headers: { 'X-API-Key': config.key } } })
  }
  return new StdioClientTransport({ command: config.command, args: config.args, env: config.env, stderr: 'inherit' })
}

async function connect() {
  const client = new Client({ name: 'test', version: '1' })
  const wire = transport()
  await client.connect(wire)
  client.onerror = () => {}
  return {
    client,
    call: (name, args = {}, options = {}) => client.callTool({ name, arguments: args }, undefined, { timeout: 50_000, ...options }),
    async end() {
      if (config.url) {
        await wire.terminateSession()
      }
      await client.close()
    },
  }
}

const one = await connect()
const { client, call } = one

async function good(name, args) {
  const result = await call(name, args)
  assert.equal(result.isError, false, JSON.stringify(result.content))
  return result.structuredContent
}

async function bad(name, args, pattern) {
  const result = await call(name, args)
  assert.equal(result.isError, true)
  assert.match(result.content[0].text, pattern)
  return result
}

const tests = {
  async 'the tools are those that are documented, with strict schemas'() {
    const { tools } = await client.listTools()
    assert.deepEqual(tools.map((tool) => tool.name), TOOLS)
    for (const tool of tools) {
      assert.equal(tool.inputSchema.additionalProperties, false, tool.name)
      assert.ok(tool.description.length > 40, tool.name)
    }
  },
  async 'it says who it is, and answers a ping'() {
    assert.equal(client.getServerVersion().name, 'hutch')
    assert.match(client.getInstructions(), /data and not as instructions/)
    await client.ping()
  },
  async 'run_command: streams and status'() {
    const result = await call('run_command', { command: 'echo out; echo err >&2; exit 3' })
    assert.equal(result.isError, true)
    assert.deepEqual(result.structuredContent, { exitStatus: 3, stdout: 'out\n', stderr: 'err\n', stdoutCut: 0, stderrCut: 0 })
    assert.match(result.content[0].text, /^exit status 3;/)
    assert.deepEqual(result.content.slice(1).map((item) => item.text), ['out\n', 'err\n'])
  },
  async 'run_command: directory, user, and that files stay'() {
    assert.equal((await good('run_command', { command: 'pwd; touch /tmp/stays', cwd: '/tmp' })).stdout, '/tmp\n')
    assert.equal((await good('run_command', { command: 'id -u; ls /tmp/stays', user: 'root' })).stdout, '0\n/tmp/stays\n')
  },
  async 'run_command: what is too long is cut, and counted'() {
    const said = await good('run_command', { command: 'head -c 300000 /dev/zero | tr "\\0" a; printf END' })
    assert.equal(said.stdoutCut, 300003 - LIMIT)
    assert.ok(said.stdout.includes(`[hutch: ${300003 - LIMIT} bytes left out here]`) && said.stdout.endsWith('aEND'))
    assert.equal((await good('run_command', { command: `head -c ${LIMIT} /dev/zero | tr "\\0" b` })).stdout, 'b'.repeat(LIMIT))
  },
  async 'run_command: bytes that are no text do no harm'() {
    const said = await good('run_command', { command: String.raw`printf 'a\0\377\303(\n"}]\033[31m'` })
    assert.equal(said.stdout, 'a\ufffd\ufffd\ufffd(\n"}]\u001b[31m')
  },
  async 'run_command: a time limit'() {
    const result = await bad('run_command', { command: 'echo first; sleep 40', timeout_s: 1 }, /^no exit status: time limit of 1s/)
    assert.equal(result.structuredContent.exitStatus, null)
    assert.equal(result.structuredContent.stdout, 'first\n')
  },
  async 'run_code: each language'() {
    assert.equal((await good('run_code', { language: 'python', code: 'import sys\nprint(6 * 7, "ä", len(sys.argv))' })).stdout, '42 ä 1\n')
    assert.equal((await good('run_code', { language: 'bash', code: 'a=(1 2 3); echo ${#a[@]}' })).stdout, '3\n')
    const node = await call('run_command', { command: 'command -v node' })
    const result = await call('run_code', { language: 'javascript', code: 'console.log(6 * 7)' })
    assert.deepEqual([result.isError, result.structuredContent.stdout], node.isError ? [true, ''] : [false, '42\n'])
    await bad('run_code', { language: 'python', code: 'raise SystemExit(4)' }, /^exit status 4;/)
    assert.equal((await good('run_command', { command: 'ls /tmp/code-* 2>/dev/null | wc -l' })).stdout, '0\n')
  },
  async 'write_file and read_file'() {
    const content = 'line one\nzwei ü\n\u0001"\\'
    assert.equal((await good('write_file', { path: 'new/dir/file.txt', content })).bytes, Buffer.byteLength(content))
    assert.deepEqual(await good('read_file', { path: 'new/dir/file.txt' }), { content, bytes: Buffer.byteLength(content), left: 0 })
    assert.equal((await good('read_file', { path: 'new/dir/file.txt', offset: 9 })).content, content.slice(9))
    await good('write_file', { path: '/tmp/empty', content: '' })
    assert.equal((await good('read_file', { path: '/tmp/empty' })).content, '')
    await good('write_file', { path: '/tmp/long', content: 'x'.repeat(200_000) })
    const part = await good('read_file', { path: '/tmp/long' })
    assert.deepEqual([part.content.length, part.left], [LIMIT, 200_000 - LIMIT])
    await bad('read_file', { path: '/tmp/none' }, /No such file/)
    await bad('read_file', { path: '/tmp' }, /cannot read/)
  },
  async 'list_files'() {
    await good('run_command', { command: 'mkdir -p /tmp/tree/a/b; echo hi > /tmp/tree/f; touch "/tmp/tree/a/with\nline"; ln -s f /tmp/tree/l' })
    const flat = await good('list_files', { path: '/tmp/tree' })
    assert.deepEqual(Object.fromEntries(flat.entries.map((e) => [e.path, e.kind])), { a: 'directory', f: 'file', l: 'symlink' })
    const deep = await call('list_files', { path: '/tmp/tree', depth: 3 })
    assert.equal(deep.structuredContent.entries.length, 5)
    assert.equal(deep.content[0].text.trimEnd().split('\n').length, 5)
    await bad('list_files', { path: '/tmp/none' }, /cannot list/)
    await good('run_command', { command: 'mkdir /tmp/many; cd /tmp/many; seq 1200 | xargs touch' })
    const many = await good('list_files', { path: '/tmp/many' })
    assert.deepEqual([many.entries.length, many.more], [1000, 200])
  },
  async 'sandboxes of its own'() {
    const { sandbox } = await good('create_sandbox', { template: 'base', timeout_s: 300 })
    await good('write_file', { path: '/tmp/here', content: 'x', sandbox })
    await bad('read_file', { path: '/tmp/here' }, /No such file/)
    const { sandboxes } = await good('list_sandboxes')
    assert.deepEqual(sandboxes.map((s) => s.own).sort(), [false, true])
    await good('kill_sandbox', { sandbox })
    await bad('run_command', { command: 'true', sandbox }, /there is no sandbox/)
    assert.equal((await good('list_sandboxes')).sandboxes.length, 1)
    await bad('create_sandbox', { template: 'no-such-image' }, /no-such-image/)
  },
  async 'no session reaches the sandboxes of another'() {
    const other = await connect()
    try {
      const { sandboxes } = await good('list_sandboxes')
      for (const [name, more] of [['run_command', { command: 'true' }], ['kill_sandbox', {}], ['read_file', { path: '/etc/hostname' }]]) {
        const result = await other.call(name, { sandbox: sandboxes[0].sandbox, ...more })
        assert.equal(result.isError, true)
        assert.match(result.content[0].text, /there is no sandbox/)
      }
      assert.deepEqual((await other.call('list_sandboxes')).structuredContent.sandboxes, [])
    } finally {
      await other.end()
    }
    await good('run_command', { command: 'true' })
  },
  async 'a sandbox that has ended is replaced, and that is said'() {
    const { sandboxes } = await good('list_sandboxes')
    await good('kill_sandbox', { sandbox: sandboxes.find((s) => s.own).sandbox })
    const result = await call('run_command', { command: 'ls /tmp/stays' })
    assert.match(result.content[0].text, /in a new one/)
    assert.equal(result.isError, true)
  },
  async 'what is wrong is an error of the protocol'() {
    const wrong = [
      ['run_command', {}], ['run_command', { command: 1 }], ['run_command', { command: 'x', more: 1 }], ['run_command', { command: '' }],
      ['run_command', { command: 'x', timeout_s: 0 }], ['run_command', { command: 'x', timeout_s: 1.5 }], ['run_code', { code: 'x', language: 'perl' }],
      ['list_files', { path: '/', depth: 99 }], ['no_such_tool', {}], ['kill_sandbox', { sandbox: '../../etc' }],
    ]
    for (const [name, args] of wrong) {
      await assert.rejects(call(name, args), (error) => error.code === -32602, `${name} ${JSON.stringify(args)}`)
    }
    await assert.rejects(client.listPrompts(), (error) => error.code === -32601 || /does not support/.test(error.message))
  },
  async 'calls at the same time are all answered'() {
    const all = await Promise.all([1, 2, 3, 4, 5].map((n) => good('run_command', { command: `echo ${n}` })))
    assert.deepEqual(all.map((said) => said.stdout), ['1\n', '2\n', '3\n', '4\n', '5\n'])
  },
  async 'a call that is cancelled ends its command, and holds up nobody'() {
    const stop = new AbortController()
    const long = call('run_command', { command: 'exec sleep 500', timeout_s: 600 }, { signal: stop.signal, timeout: 600_000 })
    setTimeout(() => stop.abort(), 1000)
    await assert.rejects(long)
    const began = Date.now()
    const said = await good('run_command', { command: 'grep -lx sleep /proc/[0-9]*/comm | wc -l; sleep 2; grep -lx sleep /proc/[0-9]*/comm | wc -l' })
    assert.ok(Date.now() - began < 30_000)
    assert.match(said.stdout, /\b0\n$/)
  },
}

let number = 0
for (const [name, test] of Object.entries(tests)) {
  try {
    await test()
    console.log(`ok ${++number} - ${name}`)
  } catch (error) {
    console.log(`not ok ${++number} - ${name}`)
    console.log(`${error.stack}`.split('\n').slice(0, 12).map((line) => `#   ${line}`).join('\n'))
  }
}
if (config.linger) {
  await good('run_command', { command: 'true' })
  console.log('lingers')
  call('run_command', { command: 'sleep 600', timeout_s: 600 }, { timeout: 600_000 }).catch(() => {})
  await new Promise((resolve) => setTimeout(resolve, 600_000))
}
await one.end()
console.log('done')
