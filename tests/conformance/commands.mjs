// SPDX-License-Identifier: Apache-2.0
// Commands: their output and results, and how clients start, feed, leave, find and end them.
import assert from 'node:assert/strict'
import { create, gateOf, kill, skipTest, sleep, test, throws, unique, until } from './harness.mjs'

export async function commands() {
  const sandbox = await create({ envs: { SBX_ENV: 'sandbox', OVER: 'a' } })
  const run = (command, options) => sandbox.commands.run(command, options)

  async function isListed(matches) {
    return (await sandbox.commands.list()).some(matches)
  }

  await test('run: stdout, stderr, exit code', async () => {
    const result = await run('echo out; echo err >&2')
    assert.equal(result.exitCode, 0)
    assert.equal(result.stdout, 'out\n')
    assert.equal(result.stderr, 'err\n')
  })

  await test('run: an exit code other than 0 throws CommandExitError with the output', async () => {
    const error = await throws(() => run('echo o; echo e >&2; exit 7'), 'CommandExitError')
    assert.equal(error.exitCode, 7)
    assert.equal(error.stdout, 'o\n')
    assert.equal(error.stderr, 'e\n')
    assert.ok(error.error)
  })

  await test('run: no output at all', async () => {
    const result = await run('true')
    assert.equal(result.stdout, '')
    assert.equal(result.stderr, '')
  })

  await test('run: chunks arrive while the command is running', async () => {
    const gate = gateOf(sandbox)
    let seen = ''
    let opened
    const onStdout = (text) => {
      seen += text
      if (seen === '1\n') {
        opened = gate.open()
      }
    }
    await run(`echo 1; ${gate.wait}; echo 2`, { onStdout, timeoutMs: 0 })
    await opened
    assert.equal(seen, '1\n2\n')
  })

  await test('run: envs, sandbox envs, override, HOME and USER', async () => {
    const command = 'echo "$SBX_ENV|$OVER|$NEW|${HOME:+h}|${USER:+u}"'
    const result = await run(command, { envs: { OVER: 'b', NEW: 'n v' } })
    assert.equal(result.stdout, 'sandbox|b|n v|h|u\n')
  })

  await test('run: cwd absolute', async () => {
    assert.equal((await run('pwd', { cwd: '/tmp' })).stdout, '/tmp\n')
  })

  await test('run: cwd missing', async () => {
    await throws(() => run('pwd', { cwd: '/no/such/dir' }), 'InvalidArgumentError')
  })

  await test('run: user root, and not root by default', async () => {
    assert.equal((await run('id -u', { user: 'root' })).stdout, '0\n')
    assert.notEqual((await run('id -u')).stdout, '0\n')
  })

  await test('run: unknown user', async () => {
    await throws(() => run('true', { user: 'nosuchuser' + unique() }), 'AuthenticationError')
  })

  await test('run: UTF-8 split over writes', async () => {
    let seen = ''
    const onStdout = (text) => {
      seen += text
    }
    const result = await run("printf '\\360\\237'; sleep 0.3; printf '\\230\\200\\n'", { onStdout })
    assert.equal(result.stdout, '😀\n')
    assert.equal(seen, '😀\n')
  })

  await test('run: 4 MiB of output are intact', async () => {
    const result = await run('head -c 4194304 /dev/zero | tr "\\0" x')
    assert.equal(result.stdout.length, 4194304)
    assert.match(result.stdout, /^x+$/)
  })

  await test('run: quoting and long arguments', async () => {
    const long = 'y'.repeat(60_000)
    const result = await run(`printf %s '${long}' | wc -c; echo "a'b\\"c"`)
    assert.equal(result.stdout.replaceAll(' ', ''), `60000\na'b"c\n`)
  })

  await test('run: stdin is at its end by default', async () => {
    assert.equal((await run('cat; echo done')).stdout, 'done\n')
  })

  await test('run: timeoutMs raises TimeoutError and kills the process', async () => {
    const command = 'sleep 3' + Math.floor(Math.random() * 1e6)
    await throws(() => run(command, { timeoutMs: 1000 }), 'TimeoutError')
    await until(async () => !(await isListed((process) => process.args.join(' ').includes(command))))
    await until(async () => !(await run('ps -eo args=')).stdout.split('\n').includes(command))
  })

  await test('background: handle, list, kill, second kill', async () => {
    const handle = await run('sleep 120', { background: true })
    assert.ok(handle.pid > 0)
    const process = (await sandbox.commands.list()).find((entry) => entry.pid === handle.pid)
    assert.ok(process, 'it is not listed')
    assert.equal(process.cmd, '/bin/bash')
    assert.deepEqual(process.args, ['-l', '-c', 'sleep 120'])
    assert.equal(await handle.kill(), true)
    const error = await throws(() => handle.wait(), 'CommandExitError')
    assert.notEqual(error.exitCode, 0)
    await until(async () => !(await isListed((entry) => entry.pid === handle.pid)))
    assert.equal(await sandbox.commands.kill(handle.pid), false)
  })

  await test('background: wait collects output', async () => {
    const handle = await run('sleep 0.3; echo late', { background: true })
    assert.equal((await handle.wait()).stdout, 'late\n')
  })

  await test('stdin: sendStdin and closeStdin', async () => {
    const handle = await run('cat', { background: true, stdin: true })
    await sandbox.commands.sendStdin(handle.pid, 'héllo\n')
    if (!handle.closeStdin) {
      skipTest('old SDK')
    }
    await handle.closeStdin()
    assert.equal((await handle.wait()).stdout, 'héllo\n')
  })

  await test('disconnect leaves the process, connect finds it again', async () => {
    const gate = gateOf(sandbox)
    const command = `for i in 1 2 3; do echo $i; sleep 0.3; done; ${gate.wait}; echo 9`
    const handle = await run(command, { background: true, timeoutMs: 0 })
    await sleep(500)
    await handle.disconnect()
    let seen = ''
    const onStdout = (text) => {
      seen += text
    }
    const second = await sandbox.commands.connect(handle.pid, { onStdout })
    assert.equal(second.pid, handle.pid)
    await gate.open()
    const result = await second.wait()
    assert.equal(result.exitCode, 0)
    assert.match(seen, /9\n$/)
  })

  await test('two subscribers see the same output', async () => {
    const gate = gateOf(sandbox)
    const first = await run(`${gate.wait}; echo both`, { background: true, timeoutMs: 0 })
    const second = await sandbox.commands.connect(first.pid)
    await gate.open()
    const results = await Promise.all([first.wait(), second.wait()])
    assert.deepEqual(results.map((result) => result.stdout), ['both\n', 'both\n'])
  })

  await test('connect: unknown pid', async () => {
    await throws(() => sandbox.commands.connect(999999), 'NotFoundError')
  })

  await test('sendStdin: unknown pid', async () => {
    await throws(() => sandbox.commands.sendStdin(999999, 'x'), 'NotFoundError')
  })

  await test('abort signal cancels the wait', async () => {
    const controller = new AbortController()
    setTimeout(() => controller.abort(), 400)
    const start = Date.now()
    await assert.rejects(() => run('sleep 50; false', { signal: controller.signal }))
    if (Date.now() - start > 40_000) {
      skipTest('old SDK')
    }
  })

  await test('24 commands in parallel', async () => {
    const numbers = Array.from({ length: 24 }, (_, index) => String(index))
    const results = await Promise.all(numbers.map((number) => run(`sleep 0.2; echo ${number}`)))
    assert.deepEqual(results.map((result) => result.stdout.trim()), numbers)
  })

  await test('the git helper works on top of commands', async () => {
    if (!sandbox.git?.init) {
      skipTest('old SDK')
    }
    const directory = '/tmp/' + unique()
    await sandbox.git.init(directory)
    assert.equal(await sandbox.files.exists(`${directory}/.git/HEAD`), true)
  })

  await kill(sandbox)
}
