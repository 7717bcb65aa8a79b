// SPDX-License-Identifier: Apache-2.0
// Egress rules, and host names of ports.
import assert from 'node:assert/strict'
import { Sandbox, create, kill, settings, skipTest, test, throws, until, withSandbox } from './harness.mjs'

export async function network() {
  await test('network options are accepted and reported', async () => {
    const rules = { allowOut: ['1.1.1.1'], denyOut: ['0.0.0.0/0'] }
    await withSandbox({ allowInternetAccess: false, network: rules }, async (sandbox) => {
      const info = await sandbox.getInfo()
      if (!info.network) {
        skipTest('no network in what the SDK tells')
      }
      assert.deepEqual(info.network.allowOut, rules.allowOut)
      assert.deepEqual(info.network.denyOut, rules.denyOut)
      assert.equal(info.allowInternetAccess, false)
    })
  })

  await test('updateNetwork', async () => {
    const sandbox = await create()
    try {
      if (!sandbox.updateNetwork) {
        skipTest('old SDK')
      }
      await sandbox.updateNetwork({ denyOut: ['8.8.8.8'] })
      assert.deepEqual((await sandbox.getInfo()).network?.denyOut, ['8.8.8.8'])
    } finally {
      await kill(sandbox)
    }
    await throws(() => Sandbox.updateNetwork(sandbox.sandboxId, {}), 'SandboxNotFoundError')
  })

  await test('getHost', async () => {
    await withSandbox({}, async (sandbox) => {
      assert.match(sandbox.getHost(3000), new RegExp(`^3000-${sandbox.sandboxId}\\.`))
    })
  })

  await test('a port of the sandbox is reached, and one where nobody listens is 502', async () => {
    await withSandbox({}, async (sandbox) => {
      await sandbox.files.write('/tmp/site/index.html', 'hello from inside')
      const options = { background: true, timeoutMs: 0, cwd: '/tmp/site' }
      const server = await sandbox.commands.run('python3 -m http.server 3000', options)
      server.wait().catch(() => {})
      const at = (port) => ({ headers: { 'e2b-sandbox-id': sandbox.sandboxId, 'e2b-sandbox-port': String(port) } })
      const page = await until(async () => {
        const response = await fetch(settings.dataUrl + '/index.html', at(3000))
        const text = await response.text()
        return response.status === 200 && text
      })
      assert.equal(page, 'hello from inside')
      const closed = await fetch(settings.dataUrl + '/', at(3001))
      assert.equal(closed.status, 502)
      assert.equal((await closed.json()).port, 3001)
    })
  })
}
