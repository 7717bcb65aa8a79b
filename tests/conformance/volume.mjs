// SPDX-License-Identifier: Apache-2.0
// Volumes, which are optional for a server.
import assert from 'node:assert/strict'
import { sdk, settings, skipTest, test, unique } from './harness.mjs'

export async function volume() {
  await test('create, write, read, list, destroy', async () => {
    if (!sdk.Volume) {
      skipTest('old SDK')
    }
    if (!settings.volumes) {
      skipTest('CONF_VOLUME is not set')
    }
    process.env.E2B_VOLUME_API_URL ||= settings.apiUrl
    const made = await sdk.Volume.create(unique())
    await made.writeFile('/a', 'x')
    assert.equal(await made.readFile('/a'), 'x')
    assert.ok((await sdk.Volume.list()).some((entry) => entry.volumeId === made.volumeId))
    assert.equal(await sdk.Volume.destroy(made.volumeId), true)
  })
}
