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
  }, 120_000)

  await test('a paused sandbox does nothing', async () => {
    await withSandbox({}, async (sandbox) => {
      const count = async () => Number((await sandbox.commands.run('wc -c </tmp/ticks')).stdout)
      const options = { background: true, timeoutMs: 0 }
      const handle = await sandbox.commands.run('while :; do printf x >>/tmp/ticks; sleep 0.05; done', options)
      handle.wait().catch(() => {})
      await until(async () => (await sandbox.files.exists('/tmp/ticks')) && (await count()) > 0)
      const before = await count()
      await sandbox.pause()
      const start = Date.now()
      await sleep(3000)
      await Sandbox.connect(sandbox.sandboxId)
      const ticks = (await count()) - before
      const possible = (Date.now() - start) / 50
      assert.ok(ticks < possible / 2, `${ticks} ticks while paused for 3 s`)
    })
  }, 120_000)

  await test('kill works on a paused sandbox', async () => {
    const sandbox = await create()
    await sandbox.pause()
    assert.equal(await sandbox.kill(), true)
    forget(sandbox)
    await throws(() => Sandbox.connect(sandbox.sandboxId), 'SandboxNotFoundError')
  })

  await test('the timeout kills the sandbox', async () => {
    const sandbox = await create({ timeoutMs: 2000 })
    await until(async () => !(await sandbox.isRunning()), 15_000, 300)
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
      await until(async () => (await sandbox.getInfo()).state === 'paused', 20_000, 400)
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
    await withSandbox({ timeoutMs: 4000 }, async (sandbox) => {
      await sandbox.pause()
      await sleep(6000)
      assert.equal((await sandbox.getInfo()).state, 'paused')
      await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 })
      assert.equal(await sandbox.isRunning(), true)
    })
  })
}
