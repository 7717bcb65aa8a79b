// SPDX-License-Identifier: Apache-2.0
// Shared by the sections: settings, sandboxes that are always killed at the end, tests as TAP.
import assert from 'node:assert/strict'

const environment = process.env

if (!environment.E2B_API_URL) {
  console.error('E2B_API_URL is not set: it names the server under test, as in http://127.0.0.1:3000')
  process.exit(2)
}
// One endpoint for both planes by default. The key has the form that older SDKs require.
environment.E2B_SANDBOX_URL ||= environment.E2B_API_URL
environment.E2B_API_KEY ||= 'e2b_' + '0'.repeat(40)
// With it the SDK would talk to no server at all.
delete environment.E2B_DEBUG

export const settings = {
  apiUrl: environment.E2B_API_URL,
  dataUrl: environment.E2B_SANDBOX_URL,
  template: environment.CONF_TEMPLATE || 'base',
  buildImage: environment.CONF_IMAGE || 'ubuntu:22.04',
  interpreterTemplate: environment.CONF_CI_TEMPLATE || 'code-interpreter-v1',
  desktopTemplate: environment.CONF_DESKTOP_TEMPLATE || 'desktop',
  volumes: Boolean(environment.CONF_VOLUME),
  secrets: Boolean(environment.CONF_SECRET),
  only: environment.CONF_ONLY?.split(','),
  skip: (environment.CONF_SKIP || '').split(',').filter(Boolean),
  verbose: Boolean(environment.CONF_VERBOSE),
}

export const sdk = await import('e2b')
export const { Sandbox } = sdk

/**
 * Imports an optional package; returns null if it is not installed. Any other error is a failure.
 */
export async function optional(name) {
  try {
    return await import(name)
  } catch (error) {
    if (error.code === 'ERR_MODULE_NOT_FOUND' && error.message.includes(`'${name}'`)) {
      return null
    }
    throw error
  }
}

// ---- tests ----
// Of one test: for hosts that do much else.
const DEADLINE = 300_000
const MESSAGE_LINES = 6
const counts = { passed: 0, failed: 0, skipped: 0 }
let currentSection = ''

class Skip extends Error {}

/** Skips the calling test: its requirement is missing in this SDK or not set up. */
export function skipTest(reason) {
  throw new Skip(reason)
}

function tell(ok, name, directive = '') {
  const number = counts.passed + counts.failed + counts.skipped
  console.log(`${ok ? 'ok' : 'not ok'} ${number} - ${currentSection}: ${name.replaceAll('#', '')}${directive}`)
}

function tellFailure(name, error) {
  counts.failed++
  tell(false, name)
  const text = settings.verbose && error?.stack ? error.stack : `${error?.name}: ${error?.message}`
  const lines = text.split('\n').slice(0, settings.verbose ? undefined : MESSAGE_LINES)
  for (const line of lines) {
    console.log('#   ' + line)
  }
}

async function within(milliseconds, work) {
  let timer
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`the test took more than ${milliseconds} ms`)), milliseconds)
  })
  try {
    return await Promise.race([work(), late])
  } finally {
    clearTimeout(timer)
  }
}

export async function test(name, work, milliseconds = DEADLINE) {
  const start = Date.now()
  try {
    await within(milliseconds, work)
    counts.passed++
    tell(true, name)
  } catch (error) {
    if (error instanceof Skip) {
      counts.skipped++
      tell(true, name, ` # SKIP ${error.message}`)
    } else {
      tellFailure(name, error)
    }
  }
  if (settings.verbose) {
    console.log(`#   ${Date.now() - start} ms`)
  }
}

/**
 * Runs the tests of a section if it was selected. An error outside a test counts as a failed test.
 */
export async function section(name, work) {
  if ((settings.only && !settings.only.includes(name)) || settings.skip.includes(name)) {
    return
  }
  currentSection = name
  console.log('# ' + name)
  try {
    await work()
  } catch (error) {
    tellFailure('the section itself', error)
  }
}

/** Kills the remaining sandboxes and prints the counts. Returns the exit code. */
export async function finish() {
  await Promise.allSettled([...living].map((sandbox) => sandbox.kill()))
  const { passed, failed, skipped } = counts
  console.log(`1..${passed + failed + skipped}`)
  console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`)
  return failed > 0 || passed + skipped === 0 ? 1 : 0
}

// An SDK promise without a handler must neither fail unseen nor end the run.
process.on('unhandledRejection', (error) => tellFailure('a promise that nobody waited for was rejected', error))

// ---- sandboxes ----
const living = new Set()

export async function create(options = {}, template = settings.template, SandboxClass = Sandbox) {
  const sandbox = await SandboxClass.create(template, { timeoutMs: 600_000, ...options })
  return keep(sandbox)
}

/** Kills the sandbox at the end if the test does not. */
export function keep(sandbox) {
  living.add(sandbox)
  return sandbox
}

/** For a sandbox that is known to have ended. */
export function forget(sandbox) {
  living.delete(sandbox)
}

export async function kill(sandbox) {
  const killed = await sandbox.kill()
  forget(sandbox)
  return killed
}

/** Runs `work` with a sandbox and kills it afterwards in any case. */
export async function withSandbox(options, work) {
  const sandbox = await create(options)
  try {
    return await work(sandbox)
  } finally {
    await kill(sandbox)
  }
}

/** Returns the header fields that address a sandbox's own services. */
export function addressOf(sandbox) {
  return { 'e2b-sandbox-id': sandbox.sandboxId, 'e2b-sandbox-port': '49983' }
}

// ---- helpers ----
export function sleep(milliseconds) {
  return new Promise((resolve) => setTimeout(resolve, milliseconds))
}

/**
 * Waits until `condition` returns a value, and returns it. Patient, because test hosts are busy.
 */
export async function until(condition, milliseconds = 120_000, step = 50) {
  const end = Date.now() + milliseconds
  for (;;) {
    const value = await condition()
    if (value) {
      return value
    }
    if (Date.now() > end) {
      throw new Error(`the condition was not met within ${milliseconds} ms: ${condition}`)
    }
    await sleep(step)
  }
}

/**
 * For a command that must not continue before the test has done something: `wait` is a shell command
 * that ends after open().
 */
export function gateOf(sandbox) {
  const path = '/tmp/gate-' + unique()
  return { wait: `until [ -e ${path} ]; do sleep 0.05; done`, open: () => sandbox.files.write(path, '') }
}

/**
 * Returns the error that `work` throws; its class must have one of the names. Compares names, not
 * classes: other packages bring their own copies of e2b.
 */
export async function throws(work, names, pattern) {
  const wanted = [names].flat()
  let error
  try {
    await work()
  } catch (thrown) {
    error = thrown
  }
  assert.ok(error, `${wanted.join(' or ')} was expected, nothing was thrown`)
  assert.ok(wanted.includes(error.name), `${wanted.join(' or ')} was expected, ${error.name} came: ${error.message}`)
  if (pattern) {
    assert.match(error.message, pattern)
  }
  return error
}

export function encode(text) {
  return new TextEncoder().encode(text)
}

export function decode(bytes) {
  return new TextDecoder().decode(bytes)
}

export function unique() {
  return 'c' + Math.random().toString(36).slice(2, 10)
}

/** Returns all items of a paginator. */
export async function collect(paginator, maxPages = 50) {
  const items = []
  for (let page = 0; paginator.hasNext; page++) {
    assert.ok(page < maxPages, `more than ${maxPages} pages`)
    items.push(...(await paginator.nextItems()))
  }
  return items
}
