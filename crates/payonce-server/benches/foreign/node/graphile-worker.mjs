// The second process of `node-graphile-worker`: executes jobs. To execute is to write a line into `effects.log` in
// the working directory, as payonce's log sink does; the benchmark counts the lines.

import { createWriteStream } from 'node:fs'

import { Logger, run } from 'graphile-worker'

// As many as payonce delivers at a time.
const CONCURRENCY = 8

const log = createWriteStream('effects.log', { flags: 'a' })

function executes(effect) {
  return async (payload) => {
    log.write(`${effect} ${payload.order_no}\n`)
  }
}

const runner = await run({
  connectionString: process.argv[2],
  concurrency: CONCURRENCY,
  maxPoolSize: CONCURRENCY,
  noHandleSignals: true,
  logger: new Logger(() => (level, message) => {
    if (level === 'error') console.error(message)
  }),
  taskList: { ship: executes('ship'), points: executes('points') },
})

process.once('SIGTERM', async () => {
  await runner.stop()
  log.end(() => process.disconnect())
})
process.send('ready')
