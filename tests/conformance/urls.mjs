// SPDX-License-Identifier: Apache-2.0
// Signed URLs: access to one file without a key.
import assert from 'node:assert/strict'
import { create, kill, test, unique } from './harness.mjs'

function form(text) {
  const data = new FormData()
  data.append('file', new Blob([text]), 'x')
  return data
}

async function statusOf(url, options) {
  const response = await fetch(url, options)
  await response.text()
  return response.status
}

export async function urls() {
  const sandbox = await create()
  const path = `/tmp/${unique()}/url ü.txt`

  await test('the sandbox is secured: URLs carry a signature', async () => {
    assert.match(await sandbox.downloadUrl(path), /signature=/)
  })

  await test('uploadUrl (a form by POST), then downloadUrl', async () => {
    const uploaded = await fetch(await sandbox.uploadUrl(path), { method: 'POST', body: form('via url') })
    assert.equal(uploaded.status, 200)
    const entries = await uploaded.json()
    assert.equal(entries[0].path, path)
    assert.equal(await sandbox.files.read(path), 'via url')
    const downloaded = await fetch(await sandbox.downloadUrl(path))
    assert.equal(downloaded.status, 200)
    assert.equal(await downloaded.text(), 'via url')
  })

  await test('with user and expiration', async () => {
    assert.equal(await statusOf(await sandbox.downloadUrl(path, { user: 'root', useSignatureExpiration: 30 })), 200)
  })

  await test('an expired signature is refused', async () => {
    assert.equal(await statusOf(await sandbox.downloadUrl(path, { useSignatureExpiration: -5 })), 401)
  })

  await test('another expiration than the signed one is refused', async () => {
    const url = new URL(await sandbox.downloadUrl(path, { useSignatureExpiration: -5 }))
    url.searchParams.set('signature_expiration', String(Math.floor(Date.now() / 1000) + 600))
    assert.equal(await statusOf(url), 401)
  })

  await test('another path, another user and no signature are refused', async () => {
    const url = new URL(await sandbox.downloadUrl(path))
    url.searchParams.set('username', 'root')
    assert.equal(await statusOf(url), 401)
    url.searchParams.delete('username')
    url.searchParams.set('path', '/etc/passwd')
    assert.equal(await statusOf(url), 401)
    url.searchParams.delete('signature')
    assert.ok([400, 401].includes(await statusOf(url)))
  })

  await test('a signature for reading does not write', async () => {
    const url = await sandbox.downloadUrl(path)
    assert.equal(await statusOf(url, { method: 'POST', body: form('evil') }), 401)
    assert.equal(await sandbox.files.read(path), 'via url')
  })

  await kill(sandbox)
}
