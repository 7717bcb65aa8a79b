// SPDX-License-Identifier: Apache-2.0
// Creates, lists, connects to, extends and ends sandboxes; and requests that are refused.
import assert from 'node:assert/strict'
import {
  Sandbox, addressOf, collect, create, forget, keep, kill, settings, skipTest, test, throws, unique, withSandbox,
} from './harness.mjs'

const METRICS = ['cpuCount', 'cpuUsedPct', 'memUsed', 'memTotal', 'diskUsed', 'diskTotal']

function ids(sandboxes) {
  return sandboxes.map((sandbox) => sandbox.sandboxId)
}

function list(query) {
  return collect(Sandbox.list({ query }))
}

async function timeLeft(sandbox) {
  return (await sandbox.getInfo()).endAt - Date.now()
}

async function assertTimeLeft(sandbox, milliseconds) {
  const left = await timeLeft(sandbox)
  assert.ok(Math.abs(left - milliseconds) < 40_000, `${left} ms are left, not about ${milliseconds}`)
}

export async function control() {
  const tag = unique()
  const metadata = { tag, 'odd key': 'b c&d=é/+%', empty: 'x' }
  const sandbox = await create({ metadata, envs: { FOO: 'bar' }, timeoutMs: 100_000 })

  await test('create: the id is a DNS label without dashes', async () => {
    assert.match(sandbox.sandboxId, /^[a-z0-9]{1,63}$/)
  })

  await test('create: default template and no options', async () => {
    const other = keep(await Sandbox.create())
    assert.ok(other.sandboxId)
    assert.notEqual(other.sandboxId, sandbox.sandboxId)
    assert.equal(await kill(other), true)
  })

  await test('getInfo: typed fields', async () => {
    const info = await sandbox.getInfo()
    assert.equal(info.sandboxId, sandbox.sandboxId)
    assert.equal(typeof info.templateId, 'string')
    assert.equal(info.state, 'running')
    assert.deepEqual(info.metadata, metadata)
    assert.ok(info.cpuCount > 0)
    assert.ok(info.memoryMB > 0)
    assert.match(info.envdVersion, /^\d+\.\d+\.\d+/)
    assert.ok(info.startedAt instanceof Date && !isNaN(info.startedAt))
    const life = info.endAt - info.startedAt
    assert.ok(life > 90_000 && life < 200_000, `it lives for ${life} ms`)
  })

  await test('create: envs are those of its commands', async () => {
    assert.equal((await sandbox.commands.run('echo $FOO')).stdout, 'bar\n')
  })

  await test('list: metadata filter with reserved characters', async () => {
    const found = await list({ metadata: { 'odd key': metadata['odd key'], tag } })
    assert.deepEqual(ids(found), [sandbox.sandboxId])
    assert.deepEqual(found[0].metadata, metadata)
  })

  await test('list: no match is empty', async () => {
    assert.deepEqual(await list({ metadata: { tag: 'nope' + tag } }), [])
    assert.deepEqual(await list({ metadata: { tag, 'odd key': 'b' } }), [])
  })

  await test('list: pagination with limit and x-next-token', async () => {
    const second = await create({ metadata: { tag } })
    const third = await create({ metadata: { tag } })
    const paginator = Sandbox.list({ query: { metadata: { tag } }, limit: 2 })
    const firstPage = await paginator.nextItems()
    assert.equal(firstPage.length, 2)
    assert.ok(paginator.hasNext)
    const secondPage = await paginator.nextItems()
    assert.equal(secondPage.length, 1)
    assert.equal(paginator.hasNext, false)
    assert.deepEqual(new Set(ids([...firstPage, ...secondPage])), new Set(ids([sandbox, second, third])))
    await assert.rejects(() => paginator.nextItems())
    await kill(second)
    await kill(third)
  })

  await test('list: state filter', async () => {
    assert.equal((await list({ metadata: { tag }, state: ['paused'] })).length, 0)
    assert.equal((await list({ metadata: { tag }, state: ['running'] })).length, 1)
    assert.equal((await list({ metadata: { tag }, state: ['running', 'paused'] })).length, 1)
  })

  await test('setTimeout: replaces the deadline', async () => {
    await sandbox.setTimeout(200_000)
    await assertTimeLeft(sandbox, 200_000)
    await sandbox.setTimeout(60_000)
    await assertTimeLeft(sandbox, 60_000)
  })

  await test('connect: a running sandbox is usable through a second handle', async () => {
    const second = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 90_000 })
    assert.equal(second.sandboxId, sandbox.sandboxId)
    assert.equal((await second.commands.run('echo via-connect')).stdout, 'via-connect\n')
  })

  await test('connect: does not shorten the deadline', async () => {
    await sandbox.setTimeout(300_000)
    await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 5_000 })
    await assertTimeLeft(sandbox, 300_000)
  })

  await test('isRunning: true', async () => {
    assert.equal(await sandbox.isRunning(), true)
  })

  await test('getMetrics: array of numbers', async () => {
    const metrics = await sandbox.getMetrics()
    assert.ok(Array.isArray(metrics))
    for (const entry of metrics) {
      for (const name of METRICS) {
        assert.equal(typeof entry[name], 'number', name)
      }
    }
  })

  await test('errors: unknown template', async () => {
    const names = ['SandboxError', 'NotFoundError', 'TemplateError', 'InvalidArgumentError']
    await throws(() => Sandbox.create('no-such-template-' + unique()), names, /40[0-9]/)
  })

  await test('errors: bad API key', async () => {
    const apiKey = 'e2b_' + 'f'.repeat(40)
    await throws(() => Sandbox.create(settings.template, { apiKey }), 'AuthenticationError')
    await throws(() => Sandbox.getInfo(sandbox.sandboxId, { apiKey }), 'AuthenticationError')
    await throws(() => Sandbox.kill(sandbox.sandboxId, { apiKey }), 'AuthenticationError')
    assert.equal(await sandbox.isRunning(), true)
  })

  await test('errors: unknown sandbox on getInfo, setTimeout, connect, pause', async () => {
    const id = 'i' + 'z'.repeat(19)
    await throws(() => Sandbox.getInfo(id), 'SandboxNotFoundError')
    await throws(() => Sandbox.setTimeout(id, 1000), 'SandboxNotFoundError')
    await throws(() => Sandbox.connect(id), 'SandboxNotFoundError')
    await throws(() => Sandbox.pause(id), 'SandboxNotFoundError')
  })

  await test('kill: true, then false, then everything reports gone', async () => {
    assert.equal(await sandbox.kill(), true)
    forget(sandbox)
    assert.equal(await Sandbox.kill(sandbox.sandboxId), false)
    await throws(() => sandbox.getInfo(), 'SandboxNotFoundError')
    assert.equal(await sandbox.isRunning(), false)
    await throws(() => sandbox.commands.run('true'), ['TimeoutError', 'SandboxNotFoundError'])
    await throws(() => sandbox.files.list('/'), 'TimeoutError')
    await throws(() => sandbox.files.read('/etc/hostname'), 'TimeoutError')
    assert.deepEqual(await list({ metadata: { tag } }), [])
  })

  await test('lifecycle options are reported', async () => {
    const lifecycle = { onTimeout: 'pause', autoResume: true }
    await withSandbox({ lifecycle }, async (other) => {
      const info = await other.getInfo()
      if (!info.lifecycle) {
        skipTest('no lifecycle in what the SDK tells')
      }
      assert.deepEqual(info.lifecycle, lifecycle)
    })
  })

  await test('envd refuses requests without the access token, and with a wrong one', async () => {
    await withSandbox({}, async (other) => {
      const headers = { 'content-type': 'application/json', ...addressOf(other) }
      for (const token of [{}, { 'x-access-token': 'wrong' }]) {
        const rpc = { method: 'POST', headers: { ...headers, ...token }, body: '{}' }
        const processes = await fetch(settings.dataUrl + '/process.Process/List', rpc)
        assert.equal(processes.status, 401)
        await processes.text()
        const file = await fetch(settings.dataUrl + '/files?path=x', { headers: { ...addressOf(other), ...token } })
        assert.equal(file.status, 401)
        await file.text()
      }
    })
  })
}
