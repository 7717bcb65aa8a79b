// SPDX-License-Identifier: Apache-2.0
// Many sandboxes and commands at a time.
import assert from 'node:assert/strict'
import { create, kill, test, unique } from './harness.mjs'

const SANDBOXES = 5
const STREAMS = 12
const COMMANDS = 10

/** Calls `work` with 0 to count - 1, all at once, and returns the results. */
function each(count, work) {
  return Promise.all(Array.from({ length: count }, (_, index) => work(index)))
}

async function checkEcho(sandbox, text) {
  const result = await sandbox.commands.run(`echo ${text}`)
  assert.equal(result.stdout, text + '\n')
}

export async function load() {
  await test('5 sandboxes with 10 commands each and 60 open streams', async () => {
    const sandboxes = await each(SANDBOXES, () => create())
    try {
      const options = { background: true, timeoutMs: 0 }
      const handles = await each(SANDBOXES * STREAMS, (index) => {
        return sandboxes[index % SANDBOXES].commands.run('sleep 600', options)
      })
      await each(SANDBOXES, (owner) => {
        return each(COMMANDS, (index) => checkEcho(sandboxes[owner], `${owner}-${index}`))
      })
      const killed = await Promise.all(handles.map((handle) => handle.kill()))
      assert.ok(killed.every(Boolean), 'a command had ended by itself')
      await Promise.all(handles.map((handle) => assert.rejects(() => handle.wait())))
    } finally {
      await Promise.all(sandboxes.map(kill))
    }
  }, 600_000)

  await test('sandboxes do not see each other', async () => {
    const [first, second] = await Promise.all([create(), create()])
    const name = unique()
    await first.files.write(name, 'a')
    assert.equal(await second.files.exists(name), false)
    await kill(first)
    await kill(second)
  })
}
