// SPDX-License-Identifier: Apache-2.0
// Secrets, which are optional for a server.
import assert from 'node:assert/strict'
import { sdk, settings, skipTest, test, unique } from './harness.mjs'

export async function secret() {
  await test('create, exists, destroy', async () => {
    if (!sdk.Secret) {
      skipTest('old SDK')
    }
    if (!settings.secrets) {
      skipTest('CONF_SECRET is not set')
    }
    const name = unique()
    const made = await sdk.Secret.create(name, 'v')
    assert.equal(made.name, name)
    assert.equal(await sdk.Secret.exists(name), true)
    assert.equal(await sdk.Secret.destroy(name), true)
  })
}
