// SPDX-License-Identifier: Apache-2.0
// Watches directories, as streams and by polling.
import assert from 'node:assert/strict'
import {
  addressOf, create, kill, sdk, settings, skipTest, sleep, test, throws, unique, until,
} from './harness.mjs'

export async function watch() {
  const sandbox = await create()
  const fs = sandbox.files
  const top = '/tmp/' + unique()
  await fs.makeDir(top)

  /** Opens a watch that collects its events in `.events`. */
  async function open(options) {
    const watcher = { events: [] }
    const onEvent = (event) => {
      watcher.events.push(event)
    }
    watcher.handle = await fs.watchDir(top, onEvent, options)
    watcher.saw = (name, type) => watcher.events.some((e) => e.name === name && (!type || e.type === type))
    watcher.stop = () => watcher.handle.stop()
    return watcher
  }

  async function call(method, body) {
    const headers = { 'content-type': 'application/json', 'connect-protocol-version': '1', ...addressOf(sandbox) }
    if (sandbox.envdAccessToken) {
      headers['x-access-token'] = sandbox.envdAccessToken
    }
    const url = `${settings.dataUrl}/filesystem.Filesystem/${method}`
    const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) })
    return { status: response.status, body: await response.json() }
  }

  await test('watchDir: create, write, remove, stop', async () => {
    let exited = false
    const onExit = () => {
      exited = true
    }
    const watcher = await open({ timeoutMs: 0, onExit })
    await fs.write(`${top}/w.txt`, '1')
    await until(() => watcher.saw('w.txt', 'create') && watcher.saw('w.txt', 'write'))
    await fs.remove(`${top}/w.txt`)
    await until(() => watcher.saw('w.txt', 'remove'))
    await watcher.stop()
    await until(() => exited)
    const count = watcher.events.length
    await fs.write(`${top}/after`, 'x')
    await sleep(300)
    assert.equal(watcher.events.length, count)
  })

  await test('watchDir: not recursive by default, recursive on request', async () => {
    await fs.makeDir(`${top}/sub`)
    const flat = await open()
    const deep = await open({ recursive: true })
    await fs.write(`${top}/sub/in.txt`, 'x')
    await until(() => deep.saw('sub/in.txt'))
    await sleep(200)
    assert.ok(!flat.events.some((event) => event.name.includes('in.txt')))
    // The first writes may come before the new directories are watched.
    await until(async () => {
      await fs.write(`${top}/fresh/dir/deep.txt`, 'x')
      return deep.saw('fresh/dir/deep.txt')
    }, undefined, 300)
    await flat.stop()
    await deep.stop()
  })

  await test('watchDir: includeEntry', async () => {
    if (!sdk.E2B) {
      skipTest('old SDK')
    }
    const watcher = await open({ includeEntry: true })
    await fs.write(`${top}/e.txt`, 'abc')
    const event = await until(() => watcher.events.find((e) => e.name === 'e.txt' && e.entry))
    assert.equal(event.entry.path, `${top}/e.txt`)
    assert.equal(event.entry.type, 'file')
    await watcher.stop()
  })

  await test('watchDir: errors', async () => {
    await throws(() => fs.watchDir('/no/such', () => {}), ['FileNotFoundError', 'NotFoundError'])
    await fs.write(`${top}/file`, '')
    await throws(() => fs.watchDir(`${top}/file`, () => {}), 'InvalidArgumentError')
  })

  await test('watchDir: timeoutMs ends it with TimeoutError', async () => {
    const exits = []
    const onExit = (error) => {
      exits.push(error)
    }
    await fs.watchDir(top, () => {}, { timeoutMs: 700, onExit })
    await until(() => exits.length > 0)
    assert.equal(exits[0]?.name, 'TimeoutError')
  })

  await test('polled watches, as the synchronous Python SDK has them', async () => {
    const created = await call('CreateWatcher', { path: top })
    assert.equal(created.status, 200)
    const { watcherId } = created.body
    assert.ok(watcherId)
    await fs.write(`${top}/polled`, 'x')
    const events = []
    await until(async () => {
      const polled = await call('GetWatcherEvents', { watcherId })
      assert.equal(polled.status, 200)
      events.push(...(polled.body.events ?? []))
      return events.some((event) => event.name === 'polled' && ['EVENT_TYPE_CREATE', 1].includes(event.type))
    })
    assert.equal((await call('RemoveWatcher', { watcherId })).status, 200)
    const gone = await call('GetWatcherEvents', { watcherId })
    assert.equal(gone.status, 404)
    assert.equal(gone.body.code, 'not_found')
  })

  await kill(sandbox)
}
