// SPDX-License-Identifier: Apache-2.0
// The desktop, a separate package.
import assert from 'node:assert/strict'
import { create, kill, optional, settings, skipTest, test } from './harness.mjs'

export async function desktop() {
  const library = await optional('@e2b/desktop')
  if (!library) {
    await test('the package', async () => skipTest('it is not installed'))
    return
  }
  let sandbox

  await test('create starts X and the desktop session', async () => {
    sandbox = await create({ resolution: [1024, 768] }, settings.desktopTemplate, library.Sandbox)
  }, 120_000)
  if (!sandbox) {
    return
  }

  await test('a screenshot is a PNG', async () => {
    const image = await sandbox.screenshot()
    assert.equal(Buffer.from(image.slice(1, 4)).toString(), 'PNG')
  })

  await test('mouse, keyboard, queries', async () => {
    await sandbox.moveMouse(10, 20)
    await sandbox.leftClick()
    await sandbox.press('enter')
    await sandbox.write("it's")
    const position = await sandbox.getCursorPosition()
    assert.equal(position.x, 10)
    assert.equal(position.y, 20)
    const size = await sandbox.getScreenSize()
    assert.equal(size.width, 1024)
    assert.equal(size.height, 768)
  })

  await test('the stream is started, has a URL, is stopped', async () => {
    await sandbox.stream.start()
    assert.match(sandbox.stream.getUrl(), /^https:\/\/6080-.*\/vnc\.html\?/)
    await sandbox.stream.stop()
  })

  await kill(sandbox)
}
