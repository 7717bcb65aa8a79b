// SPDX-License-Identifier: Apache-2.0
// Builds templates from an image by steps, and starts sandboxes from them.
import assert from 'node:assert/strict'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { create, kill, sdk, settings, skipTest, test, throws, unique } from './harness.mjs'

const BUILD_DEADLINE = 600_000

export async function template() {
  const { Template } = sdk
  const name = 'conf-' + unique()

  /** Makes a directory with one file, for COPY. */
  async function withContext(work) {
    const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'conf-'))
    try {
      fs.writeFileSync(path.join(directory, 'in.txt'), 'copied')
      return await work(directory)
    } finally {
      fs.rmSync(directory, { recursive: true })
    }
  }

  await test('exists', async () => {
    const exists = Template?.exists ?? Template?.aliasExists
    if (!exists) {
      skipTest('old SDK')
    }
    assert.equal(await exists.call(Template, settings.template), true)
    assert.equal(await exists.call(Template, 'absent-' + name), false)
  })

  await test('build: image, run and copy, logs, then create from it', async () => {
    if (!Template?.build) {
      skipTest('old SDK')
    }
    const logs = []
    const onBuildLogs = (entry) => {
      logs.push(entry)
    }
    const built = await withContext((fileContextPath) => {
      const steps = Template({ fileContextPath })
        .fromImage(settings.buildImage)
        .copy('in.txt', '/opt/in.txt')
        .runCmd('echo built > /opt/built')
        .setEnvs({ TENV: '1' })
        .setStartCmd('sleep 1', 'true')
      return Template.build(steps, name, { cpuCount: 1, memoryMB: 512, onBuildLogs })
    })
    assert.ok(built.templateId)
    assert.ok(built.buildId)
    assert.ok(logs.length > 0)
    const sandbox = await create({}, name)
    assert.equal(await sandbox.files.read('/opt/in.txt'), 'copied')
    assert.equal(await sandbox.files.read('/opt/built'), 'built\n')
    assert.equal((await sandbox.commands.run('echo $TENV')).stdout, '1\n')
    await kill(sandbox)
  }, BUILD_DEADLINE)

  await test('build: a failing step is a BuildError, and makes no template', async () => {
    if (!Template?.build) {
      skipTest('old SDK')
    }
    const steps = Template().fromImage(settings.buildImage).runCmd('exit 77')
    const error = await throws(() => Template.build(steps, name + 'x'), 'BuildError')
    assert.doesNotMatch(error.message, /^[45]\d\d:/, 'the build was refused, and did not fail')
    await assert.rejects(() => create({}, name + 'x'))
  }, BUILD_DEADLINE)
}
