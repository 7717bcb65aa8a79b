// SPDX-License-Identifier: Apache-2.0
// Pause, resume, and the end by timeout and by kill. Forks need memory snapshots: see snapshot.mjs.
import assert from 'node:assert/strict'
import {
  Sandbox, collect, create, forget, kill, skipTest, sleep, test, throws, unique, until, withSandbox,
} from './harness.mjs'

export async function lifecycle() {
  await test('pause and resume keep files and processes', async () => {
    const tag = unique()
    await withSandbox({ metadata: { tag } }, async (sandbox) => {
      await sandbox.files.write('/tmp/keep-' + tag, 'kept')
      const handle = await sandbox.commands.run('sleep 300', { background: true, timeoutMs: 0 })
      handle.wait().catch(() => {})
      assert.equal(await sandbox.pause(), true)
      assert.equal((await sandbox.getInfo()).state, 'paused')
      assert.equal(await sandbox.pause(), false)
      assert.equal(await sandbox.isRunning(), false)
      const paused = await collect(Sandbox.list({ query: { metadata: { tag }, state: ['paused'] } }))
      assert.equal(paused.length, 1)
      const resumed = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
      assert.equal(await resumed.isRunning(), true)
      assert.equal(await resumed.files.read('/tmp/keep-' + tag), 'kept')
      const processes = await resumed.commands.list()
      assert.ok(processes.some((process) => process.pid === handle.pid), 'the process is lost')
      assert.equal((await resumed.getInfo()).state, 'running')
    })
  })

  await test('a paused sandbox does nothing', async () => {
    await withSandbox({}, async (sandbox) => {
      const ticks = async () => (await sandbox.commands.run('cat /tmp/ticks')).stdout.trim().split('\n').map(Number)
      const options = { background: true, timeoutMs: 0 }
      const handle = await sandbox.commands.run('while :; do date +%s%3N >>/tmp/ticks; sleep 0.05; done', options)
      handle.wait().catch(() => {})
      await until(async () => (await sandbox.files.exists('/tmp/ticks')) && (await ticks())[0] > 0)
      await sandbox.pause()
      await sleep(3000)
      await Sandbox.connect(sandbox.sandboxId)
      const before = (await ticks()).length
      await until(async () => (await ticks()).length > before)
      const times = await ticks()
      const longest = Math.max(...times.slice(1).map((time, index) => time - times[index]))
      assert.ok(longest > 2500, `paused for 3 s, and never ${longest} ms without a tick`)
    })
  })

  await test('kill works on a paused sandbox', async () => {
    const sandbox = await create()
    await sandbox.pause()
    assert.equal(await sandbox.kill(), true)
    forget(sandbox)
    await throws(() => Sandbox.connect(sandbox.sandboxId), 'SandboxNotFoundError')
  })

  await test('the timeout kills the sandbox', async () => {
    const sandbox = await create({ timeoutMs: 2000 })
    await until(async () => !(await sandbox.isRunning()), undefined, 300)
    forget(sandbox)
    await throws(() => sandbox.commands.run('true'), ['TimeoutError', 'SandboxNotFoundError'])
  })

  await test('a running command fails with an error when the sandbox is killed', async () => {
    const sandbox = await create()
    const command = sandbox.commands.run('sleep 60', { timeoutMs: 0 })
    const outcome = command.then(() => null, (error) => error)
    await sleep(500)
    await kill(sandbox)
    assert.ok((await outcome) instanceof Error, 'the command ended well')
  })

  await test('onTimeout: pause', async () => {
    await withSandbox({ timeoutMs: 2000, lifecycle: { onTimeout: 'pause' } }, async (sandbox) => {
      if (!(await sandbox.getInfo()).lifecycle) {
        skipTest('no lifecycle in what the SDK tells')
      }
      await until(async () => (await sandbox.getInfo()).state === 'paused', undefined, 400)
      await Sandbox.connect(sandbox.sandboxId)
      assert.equal(await sandbox.isRunning(), true)
    })
  })

  await test('autoResume: the first request wakes a paused sandbox', async () => {
    await withSandbox({ lifecycle: { onTimeout: 'pause', autoResume: true } }, async (sandbox) => {
      if (!(await sandbox.getInfo()).lifecycle) {
        skipTest('no lifecycle in what the SDK tells')
      }
      await sandbox.files.write('/tmp/asleep', 'awake')
      assert.equal(await sandbox.pause(), true)
      assert.equal((await sandbox.getInfo()).state, 'paused')
      assert.equal(await sandbox.files.read('/tmp/asleep'), 'awake')
      assert.equal((await sandbox.getInfo()).state, 'running')
      assert.equal(await sandbox.pause(), true)
      assert.equal((await sandbox.commands.run('echo up')).stdout, 'up\n')
    })
  })

  await test('a pause stops the clock of the deadline', async () => {
    // On a busy host the first may end before it is paused.
    for (const seconds of [4, 20, 60]) {
      const sandbox = await create({ timeoutMs: seconds * 1000 })
      const paused = await sandbox.pause().catch(() => false)
      if (paused) {
        await sleep((seconds + 2) * 1000)
        assert.equal((await sandbox.getInfo()).state, 'paused')
        await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
        assert.equal(await sandbox.isRunning(), true)
      }
      await kill(sandbox)
      if (paused) {
        return
      }
    }
    assert.fail('no pause came before the deadline')
  })
}
