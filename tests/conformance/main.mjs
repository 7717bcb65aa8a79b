#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0
// Runs the unmodified E2B SDK against our server. Prints TAP and a last line "N passed, N failed,
// N skipped". The package e2b (and @e2b/code-interpreter, @e2b/desktop) must be in a node_modules
// directory beside this file or above it: run.py sees to that.
//
//   E2B_API_URL=http://127.0.0.1:3000 node main.mjs
//
// E2B_API_URL           the control plane; required
// E2B_SANDBOX_URL       the data plane, if separate
// E2B_API_KEY           a key of the server
// CONF_ONLY, CONF_SKIP  comma-separated lists of sections
// CONF_VERBOSE=1        stack traces, and the time of each test
// CONF_TEMPLATE         the template of the sandboxes (base)
// CONF_IMAGE            the image that templates are built from (ubuntu:22.04)
// CONF_CI_TEMPLATE, CONF_DESKTOP_TEMPLATE  templates of the interpreter and the desktop
// CONF_VOLUME=1, CONF_SECRET=1             the server has volumes, secrets
import { finish, section, settings } from './harness.mjs'
import { commands } from './commands.mjs'
import { control } from './control.mjs'
import { desktop } from './desktop.mjs'
import { files } from './files.mjs'
import { interpreter } from './interpreter.mjs'
import { lifecycle } from './lifecycle.mjs'
import { load } from './load.mjs'
import { network } from './network.mjs'
import { pty } from './pty.mjs'
import { secret } from './secret.mjs'
import { snapshot } from './snapshot.mjs'
import { template } from './template.mjs'
import { urls } from './urls.mjs'
import { volume } from './volume.mjs'
import { watch } from './watch.mjs'

const sections = {
  control,
  commands,
  pty,
  files,
  watch,
  urls,
  lifecycle,
  snapshot,
  network,
  template,
  interpreter,
  desktop,
  volume,
  secret,
  load,
}

for (const name of [...(settings.only ?? []), ...settings.skip]) {
  if (!(name in sections)) {
    console.error(`there is no section '${name}'; there are ${Object.keys(sections).join(', ')}`)
    process.exit(2)
  }
}
for (const [name, work] of Object.entries(sections)) {
  await section(name, work)
}
process.exit(await finish())
