// SPDX-License-Identifier: Apache-2.0
// The load for kill.py: clients that keep working while the server dies every few seconds. Each has
// a sandbox with a counting command, follows its output, reconnects when the stream is cut, and
// does other work meanwhile. At the end it prints a line of JSON: the id, the pid of the command,
// the output it saw (in pieces, one for each stream), and how often it had to retry.
import { Sandbox, create, forget, sleep } from './harness.mjs'

const CLIENTS = Number(process.env.KILL_CLIENTS || 5)
const LINES = Number(process.env.KILL_LINES || 1500)
const PATIENCE = 120_000
const COMMAND = `for i in $(seq 1 ${LINES}); do echo line $i; sleep 0.02; done`
const AFTER_THE_END = ['NotFoundError', 'CommandExitError']

/** Retries while the server is away. A refusal is not retried. */
async function retry(counts, work) {
  const end = Date.now() + PATIENCE
  for (;;) {
    try {
      return await work()
    } catch (error) {
      if (AFTER_THE_END.includes(error.name) || Date.now() > end) {
        throw error
      }
      counts.retries++
      await sleep(100)
    }
  }
}

/**
 * An interrupted create may have succeeded: looks for the sandbox by its mark before it makes
 * another.
 */
async function createMarked(counts, mark) {
  return retry(counts, async () => {
    const [found] = await Sandbox.list({ query: { metadata: { mark } } }).nextItems()
    if (found) {
      return Sandbox.connect(found.sandboxId, { timeoutMs: 600_000 })
    }
    return create({ metadata: { mark }, timeoutMs: 600_000 })
  })
}

/** Returns the sandbox's command. If its start was not confirmed, finds it in the list. */
async function startOnce(counts, sandbox) {
  return retry(counts, async () => {
    const started = (await sandbox.commands.list()).find((process) => process.args.includes(COMMAND))
    if (started) {
      return started.pid
    }
    const handle = await sandbox.commands.run(COMMAND, { background: true, timeoutMs: 0 })
    await handle.disconnect()
    return handle.pid
  })
}

/** Follows the output to the end of the command. */
async function follow(counts, sandbox, pid, pieces) {
  const toTheEnd = async () => {
    const piece = { text: '', ended: false }
    const onStdout = (text) => {
      piece.text += text
    }
    const handle = await sandbox.commands.connect(pid, { timeoutMs: 0, onStdout })
    pieces.push(piece)
    await handle.wait()
    piece.ended = true
  }
  try {
    await retry(counts, toTheEnd)
  } catch (error) {
    // It ended while no server ran, so long ago that its end is no longer reported.
    if (error.name !== 'NotFoundError') {
      throw error
    }
  }
}

async function work(counts, sandbox, name, isOver) {
  for (let round = 0; !isOver(); round++) {
    const text = `${name}-${round}`
    await retry(counts, () => sandbox.files.write('/tmp/round', text))
    const back = await retry(counts, () => sandbox.files.read('/tmp/round'))
    if (back !== text) {
      throw new Error(`${back} was read where ${text} was written`)
    }
    const result = await retry(counts, () => sandbox.commands.run(`echo ${text}`))
    if (result.stdout !== text + '\n') {
      throw new Error(`echo ${text} printed ${result.stdout}`)
    }
    counts.rounds++
  }
}

async function client(number) {
  const counts = { retries: 0, rounds: 0 }
  const sandbox = await createMarked(counts, `kill-${number}`)
  forget(sandbox)
  const pid = await startOnce(counts, sandbox)
  const pieces = []
  let over = false
  const following = follow(counts, sandbox, pid, pieces).finally(() => {
    over = true
  })
  await Promise.all([following, work(counts, sandbox, `client-${number}`, () => over)])
  console.log(JSON.stringify({ id: sandbox.sandboxId, pid, pieces, ...counts }))
}

await Promise.all(Array.from({ length: CLIENTS }, (_, number) => client(number)))
process.exit(0)
