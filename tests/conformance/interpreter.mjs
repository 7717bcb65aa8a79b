// SPDX-License-Identifier: Apache-2.0
// The code interpreter, a separate package.
import assert from 'node:assert/strict'
import { create, kill, optional, settings, skipTest, test, throws } from './harness.mjs'

export async function interpreter() {
  const library = await optional('@e2b/code-interpreter')
  if (!library) {
    await test('the package', async () => skipTest('it is not installed'))
    return
  }
  const sandbox = await create({ envs: { CI_ENV: 'ci' } }, settings.interpreterTemplate, library.Sandbox)

  await test('runCode: result text and execution count', async () => {
    const execution = await sandbox.runCode('x = 20\nx + 22')
    assert.equal(execution.text, '42')
    assert.equal(execution.error, undefined)
    assert.equal(typeof execution.executionCount, 'number')
    assert.ok(execution.results[0].isMainResult)
  })

  await test('runCode: stdout callbacks and logs, not only ASCII', async () => {
    const lines = []
    const onStdout = (message) => {
      lines.push(message.line)
    }
    const execution = await sandbox.runCode('print("héllo 😀")', { onStdout })
    assert.equal(execution.logs.stdout.join(''), 'héllo 😀\n')
    assert.equal(lines.join(''), 'héllo 😀\n')
  })

  await test('runCode: stderr', async () => {
    const execution = await sandbox.runCode('import sys; print("E", file=sys.stderr)')
    assert.match(execution.logs.stderr.join(''), /E/)
  })

  await test('runCode: exception', async () => {
    const errors = []
    const onError = (error) => {
      errors.push(error)
    }
    const execution = await sandbox.runCode('raise ValueError("boom")', { onError })
    assert.equal(execution.error.name, 'ValueError')
    assert.match(execution.error.value, /boom/)
    assert.match(execution.error.traceback, /ValueError/)
    assert.equal(errors[0].name, 'ValueError')
  })

  await test('runCode: envs of the call and of the sandbox', async () => {
    const code = 'import os; os.environ.get("A","-")+os.environ.get("CI_ENV","-")'
    const execution = await sandbox.runCode(code, { envs: { A: 'b' } })
    assert.equal(execution.text, 'bci')
  })

  await test('contexts: create, list, run, restart, remove', async () => {
    const isListed = async (id) => (await sandbox.listCodeContexts()).some((entry) => entry.id === id)
    const context = await sandbox.createCodeContext({ cwd: '/tmp' })
    assert.ok(context.id)
    assert.equal(context.language, 'python')
    assert.equal(context.cwd, '/tmp')
    assert.ok(await isListed(context.id))
    assert.equal((await sandbox.runCode('1+1', { context })).text, '2')
    await sandbox.restartCodeContext(context)
    await sandbox.removeCodeContext(context)
    assert.ok(!(await isListed(context.id)))
  })

  await test('contexts: an unknown id is NotFoundError', async () => {
    const context = { id: 'nope', language: 'python', cwd: '/' }
    await throws(() => sandbox.runCode('1', { context }), 'NotFoundError')
  })

  await kill(sandbox)
}
