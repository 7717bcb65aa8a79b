// SPDX-License-Identifier: Apache-2.0
// Terminals.
import assert from 'node:assert/strict'
import { create, decode, encode, kill, skipTest, sleep, test, throws, until } from './harness.mjs'

const CTRL_C = new Uint8Array([3])

export async function pty() {
  const sandbox = await create()
  const type = (pid, text) => sandbox.pty.sendInput(pid, encode(text))

  /** Opens a terminal that collects its output in `.output`. */
  async function open(options = {}) {
    const terminal = { output: '' }
    const onData = (bytes) => {
      assert.ok(bytes instanceof Uint8Array)
      terminal.output += decode(bytes)
    }
    terminal.handle = await sandbox.pty.create({ cols: 80, rows: 24, onData, ...options })
    terminal.pid = terminal.handle.pid
    assert.ok(terminal.pid > 0)
    return terminal
  }

  await test('create, echo, size, resize, input, kill', async () => {
    const terminal = await open({ cols: 81, rows: 25, envs: { PTYV: 'yes' }, cwd: '/tmp', timeoutMs: 0 })
    await type(terminal.pid, 'stty size; echo "v=$PTYV t=$TERM d=$(pwd)"\n')
    await until(() => /25 81/.test(terminal.output))
    await until(() => /v=yes t=xterm-256color d=\/tmp/.test(terminal.output))
    await sandbox.pty.resize(terminal.pid, { cols: 132, rows: 43 })
    await type(terminal.pid, 'stty size\n')
    await until(() => /43 132/.test(terminal.output))
    assert.equal(await sandbox.pty.kill(terminal.pid), true)
    await assert.rejects(() => terminal.handle.wait())
    assert.equal(await sandbox.pty.kill(terminal.pid), false)
  })

  await test('exit ends the stream with the exit code', async () => {
    const terminal = await open()
    await type(terminal.pid, 'exit 5\n')
    const error = await throws(() => terminal.handle.wait(), 'CommandExitError')
    assert.equal(error.exitCode, 5)
  })

  await test('Ctrl-C reaches the foreground process', async () => {
    const terminal = await open()
    // The program runs once it has printed something: before that, the key would discard the typed
    // input.
    await type(terminal.pid, 'echo up-$((1+1)); sleep 100\n')
    await until(() => terminal.output.includes('up-2'))
    await sleep(600)
    await sandbox.pty.sendInput(terminal.pid, CTRL_C)
    await type(terminal.pid, 'echo back-$((40+2))\n')
    await until(() => terminal.output.includes('back-42'))
    await sandbox.pty.kill(terminal.pid)
  })

  await test('connect: a terminal that was left is found again', async () => {
    if (!sandbox.pty.connect) {
      skipTest('old SDK')
    }
    const terminal = await open({ timeoutMs: 0 })
    await terminal.handle.disconnect()
    let output = ''
    const onData = (bytes) => {
      output += decode(bytes)
    }
    const second = await sandbox.pty.connect(terminal.pid, { onData })
    await type(second.pid, 'echo re-$((1+1))\n')
    await until(() => output.includes('re-2'))
    await sandbox.pty.kill(terminal.pid)
  })

  await kill(sandbox)
}
