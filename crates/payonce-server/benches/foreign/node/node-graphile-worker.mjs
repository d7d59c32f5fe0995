// Competitor `node-graphile-worker`: as `node-pg`, but effects are jobs of graphile-worker, added in the same
// transaction and executed meanwhile by a second process, so that the one that answers keeps its core.

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

import { args, serve } from './serve.mjs'
import { open } from './shop.mjs'
import { reader } from './wechat.mjs'

const JOBS = {
  name: 'jobs',
  text: `SELECT graphile_worker.add_job('ship', $1::json), graphile_worker.add_job('points', $1::json)`,
}

async function intoJobs(client, _payment, payload) {
  await client.query({ ...JOBS, values: [payload] })
}

const { keysFile, url } = args()
const worker = fork(fileURLToPath(new URL('graphile-worker.mjs', import.meta.url)), [url])
// It says so once its tables are there and it listens.
await once(worker, 'message')

async function close() {
  worker.kill('SIGTERM')
  if (worker.exitCode === null) await once(worker, 'exit')
}

const books = await open(url, intoJobs)
await serve(reader(JSON.parse(readFileSync(keysFile, 'utf8'))), books, {
  what: ', a second process with graphile-worker executes the effects',
  close,
})
