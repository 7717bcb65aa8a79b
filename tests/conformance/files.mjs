// SPDX-License-Identifier: Apache-2.0
// Writes, reads, lists, moves and removes files in every form that the SDK has.
import assert from 'node:assert/strict'
import { create, decode, encode, kill, sdk, skipTest, test, throws, unique } from './harness.mjs'

const MISSING = ['FileNotFoundError', 'NotFoundError']

async function readStream(stream) {
  const chunks = []
  for await (const chunk of stream) {
    chunks.push(Buffer.from(chunk))
  }
  return Buffer.concat(chunks)
}

/** Returns all byte values, line ends, and bytes that look like a form boundary. */
function awkwardBytes() {
  const bytes = new Uint8Array(70_000)
  for (let index = 0; index < bytes.length; index++) {
    bytes[index] = index & 255
  }
  bytes.set(encode('\r\n------formdata-undici-0\r\n'), 1000)
  return bytes
}

export async function files() {
  const sandbox = await create()
  const fs = sandbox.files
  const top = '/tmp/' + unique()
  const file = `${top}/a/b/c.txt`

  await test('write returns name, path and type, and makes parents', async () => {
    const entry = await fs.write(file, 'hello')
    assert.equal(entry.path, file)
    assert.equal(entry.name, 'c.txt')
    assert.equal(entry.type, 'file')
  })

  await test('read as text, bytes, blob and stream', async () => {
    assert.equal(await fs.read(file), 'hello')
    assert.equal(decode(await fs.read(file, { format: 'bytes' })), 'hello')
    assert.equal(await (await fs.read(file, { format: 'blob' })).text(), 'hello')
    assert.equal((await readStream(await fs.read(file, { format: 'stream' }))).toString(), 'hello')
  })

  await test('an empty file in every format', async () => {
    await fs.write(`${top}/empty`, '')
    assert.equal(await fs.read(`${top}/empty`), '')
    assert.equal((await fs.read(`${top}/empty`, { format: 'bytes' })).length, 0)
    assert.equal((await readStream(await fs.read(`${top}/empty`, { format: 'stream' }))).length, 0)
  })

  await test('writing again truncates', async () => {
    await fs.write(`${top}/o`, 'long content')
    await fs.write(`${top}/o`, 'x')
    assert.equal(await fs.read(`${top}/o`), 'x')
  })

  await test('binary round trip: all byte values, CRLF, what looks like a boundary', async () => {
    const bytes = awkwardBytes()
    await fs.write(`${top}/bin`, bytes.buffer)
    const back = await fs.read(`${top}/bin`, { format: 'bytes' })
    assert.deepEqual(Buffer.from(back), Buffer.from(bytes))
  })

  await test('8 MiB round trip', async () => {
    const bytes = Buffer.alloc(8 << 20, 0)
    for (let index = 0; index < bytes.length; index += 4093) {
      bytes[index] = index & 255
    }
    await fs.write(`${top}/big`, new Blob([bytes]))
    const back = await fs.read(`${top}/big`, { format: 'bytes' })
    assert.equal(Buffer.compare(Buffer.from(back), bytes), 0)
  })

  await test('many files in one request', async () => {
    const entries = await fs.write([
      { path: `${top}/m/1`, data: 'one' },
      { path: `${top}/m/2 ü.txt`, data: new Blob(['two']) },
    ])
    assert.deepEqual(entries.map((entry) => entry.path), [`${top}/m/1`, `${top}/m/2 ü.txt`])
    assert.equal(await fs.read(`${top}/m/1`), 'one')
    assert.equal(await fs.read(`${top}/m/2 ü.txt`), 'two')
  })

  await test('uploads as octet-stream, with gzip and from a ReadableStream', async () => {
    await fs.write(`${top}/os`, 'oct', { useOctetStream: true })
    assert.equal(await fs.read(`${top}/os`), 'oct')
    const long = 'zip'.repeat(1000)
    await fs.write(`${top}/gz`, long, { gzip: true })
    assert.equal(await fs.read(`${top}/gz`), long)
    assert.equal(await fs.read(`${top}/gz`, { gzip: true }), long)
    const stream = new ReadableStream({
      start(controller) {
        controller.enqueue(encode('str'))
        controller.enqueue(encode('eam'))
        controller.close()
      },
    })
    await fs.write(`${top}/st`, stream)
    assert.equal(await fs.read(`${top}/st`), 'stream')
  })

  await test('relative paths and ~ lead to the home directory', async () => {
    const name = unique()
    const relative = await fs.write(name, 'rel')
    assert.equal(await fs.read(name), 'rel')
    const home = (await sandbox.commands.run('echo $HOME')).stdout.trim()
    assert.equal(relative.path, `${home}/${name}`)
    const tilde = await fs.write(`~/${name}.t`, 't')
    assert.equal(tilde.path, `${home}/${name}.t`)
  })

  await test('files and commands share one filesystem, and one user', async () => {
    await sandbox.commands.run(`printf cmd > ${top}/fromcmd`)
    assert.equal(await fs.read(`${top}/fromcmd`), 'cmd')
    assert.equal((await sandbox.commands.run(`cat ${top}/os`)).stdout, 'oct')
    const owners = await sandbox.commands.run(`stat -c %U ${top} ${top}/os ${top}/fromcmd`)
    assert.equal(owners.stdout, 'user\nuser\nuser\n')
  })

  await test('errors: reading what is missing, and a directory', async () => {
    await throws(() => fs.read(`${top}/nope`), MISSING)
    await throws(() => fs.read(`${top}/nope`, { format: 'stream' }), MISSING)
    await throws(() => fs.read(top), 'InvalidArgumentError')
  })

  await test('errors: writing onto a directory, an unknown user', async () => {
    await throws(() => fs.write(top, 'x'), 'InvalidArgumentError')
    await throws(() => fs.write(`${top}/u`, 'x', { user: 'nosuchuser' }), 'AuthenticationError')
  })

  await test('list: depth 1 and 2, absolute paths, types', async () => {
    const flat = await fs.list(top)
    assert.ok(flat.every((entry) => entry.path === `${top}/${entry.name}`))
    assert.equal(flat.find((entry) => entry.name === 'a').type, 'dir')
    assert.equal(flat.find((entry) => entry.name === 'o').type, 'file')
    assert.ok(!flat.some((entry) => entry.name === 'b'))
    const deep = await fs.list(top, { depth: 2 })
    assert.ok(deep.some((entry) => entry.path === `${top}/a/b` && entry.type === 'dir'))
    assert.ok(!deep.some((entry) => entry.name === 'c.txt'))
  })

  await test('list: an empty directory', async () => {
    await fs.makeDir(`${top}/void`)
    assert.deepEqual(await fs.list(`${top}/void`), [])
  })

  await test('list: errors', async () => {
    await throws(() => fs.list(`${top}/nope`), MISSING)
    await throws(() => fs.list(`${top}/o`), 'InvalidArgumentError')
    await throws(() => fs.list(top, { depth: 0 }), 'InvalidArgumentError')
  })

  await test('getInfo: all fields', async () => {
    const entry = await fs.getInfo(`${top}/os`)
    assert.equal(entry.name, 'os')
    assert.equal(entry.path, `${top}/os`)
    assert.equal(entry.type, 'file')
    assert.equal(entry.size, 3)
    assert.equal(typeof entry.mode, 'number')
    assert.match(entry.permissions, /^-r/)
    assert.ok(entry.owner)
    assert.ok(entry.group)
    assert.ok(Math.abs(entry.modifiedTime - Date.now()) < 120_000)
    assert.equal(entry.symlinkTarget, undefined)
  })

  await test('getInfo: symbolic link', async () => {
    await sandbox.commands.run(`ln -s ${top}/os ${top}/lnk`)
    const entry = await fs.getInfo(`${top}/lnk`)
    assert.equal(entry.symlinkTarget, `${top}/os`)
    assert.equal(entry.type, 'file')
  })

  await test('exists', async () => {
    assert.equal(await fs.exists(`${top}/os`), true)
    assert.equal(await fs.exists(`${top}/nope`), false)
  })

  await test('makeDir: true, then false', async () => {
    assert.equal(await fs.makeDir(`${top}/x/y/z`), true)
    assert.equal(await fs.makeDir(`${top}/x/y/z`), false)
    await throws(() => fs.makeDir(`${top}/os`), 'InvalidArgumentError')
  })

  await test('rename: a file, makes parents; a missing source', async () => {
    const entry = await fs.rename(`${top}/o`, `${top}/new/o2`)
    assert.equal(entry.path, `${top}/new/o2`)
    assert.equal(await fs.exists(`${top}/o`), false)
    assert.equal(await fs.read(`${top}/new/o2`), 'x')
    await throws(() => fs.rename(`${top}/nope`, `${top}/n2`), MISSING)
  })

  await test('remove: a file, a tree, what is missing', async () => {
    await fs.remove(`${top}/os`)
    assert.equal(await fs.exists(`${top}/os`), false)
    await fs.remove(`${top}/x`)
    assert.equal(await fs.exists(`${top}/x`), false)
    await fs.remove(`${top}/never`)
  })

  await test('metadata round trip', async () => {
    if (!sdk.E2B) {
      skipTest('old SDK')
    }
    const metadata = { owner: 'me', 'x-y': '1 2' }
    const entry = await fs.write(`${top}/meta`, 'm', { metadata })
    assert.deepEqual(entry.metadata, metadata)
    assert.deepEqual((await fs.getInfo(`${top}/meta`)).metadata, metadata)
    await fs.write(`${top}/meta`, 'm2')
    assert.equal((await fs.getInfo(`${top}/meta`)).metadata, undefined)
  })

  await kill(sandbox)
}
