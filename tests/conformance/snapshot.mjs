// SPDX-License-Identifier: Apache-2.0
// Snapshots, and forks made from them.
import assert from 'node:assert/strict'
import { Sandbox, collect, create, keep, kill, skipTest, test, unique, until, withSandbox } from './harness.mjs'

export async function snapshot() {
  const sandbox = await create()
  const mark = unique()
  let made

  function needsSnapshot() {
    if (!made) {
      skipTest('there is no snapshot')
    }
  }

  await test('createSnapshot', async () => {
    if (!sandbox.createSnapshot) {
      skipTest('old SDK')
    }
    await sandbox.files.write('snap-marker', mark)
    made = await sandbox.createSnapshot()
    assert.ok(made.snapshotId)
    assert.equal(await sandbox.isRunning(), true)
  })

  await test('listSnapshots', async () => {
    needsSnapshot()
    const listed = await collect(Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId }))
    assert.ok(listed.some((entry) => entry.snapshotId === made.snapshotId))
  })

  await test('create from a snapshot', async () => {
    needsSnapshot()
    const copy = await create({}, made.snapshotId)
    assert.equal(await copy.files.read('snap-marker'), mark)
    await kill(copy)
  })

  await test('what a paused sandbox is kept in is not listed', async () => {
    needsSnapshot()
    await sandbox.pause()
    const listed = await collect(Sandbox.listSnapshots({ sandboxId: sandbox.sandboxId }))
    assert.deepEqual(listed.map((entry) => entry.snapshotId), [made.snapshotId])
    await sandbox.connect()
    assert.equal(await sandbox.files.read('snap-marker'), mark)
  })

  await test('deleteSnapshot: true, then false', async () => {
    needsSnapshot()
    assert.equal(await Sandbox.deleteSnapshot(made.snapshotId), true)
    assert.equal(await Sandbox.deleteSnapshot(made.snapshotId), false)
  })

  await kill(sandbox)

  await test('fork', async () => {
    await withSandbox({}, async (original) => {
      if (!original.fork) {
        skipTest('old SDK')
      }
      await original.files.write('/tmp/forked', 'f')
      const job = await original.commands.run('while [ ! -e /tmp/go ]; do sleep 0.2; done; echo over; exit 7', { background: true })
      const forks = await original.fork({ count: 2 })
      assert.equal(forks.length, 2)
      for (const fork of forks) {
        assert.ok(!(fork instanceof Error), String(fork))
        keep(fork)
        assert.equal(await fork.isRunning(), true)
        assert.equal(await fork.files.read('/tmp/forked'), 'f')
        // Running programs continue and are commands of the fork.
        await until(async () => (await fork.commands.list()).some((one) => one.pid === job.pid))
        const same = await fork.commands.connect(job.pid)
        await fork.files.write('/tmp/go', '')
        const result = await same.wait().catch((error) => error)
        assert.equal(result.exitCode, 7)
        assert.equal(result.stdout, 'over\n')
        await kill(fork)
      }
    })
  })
}
