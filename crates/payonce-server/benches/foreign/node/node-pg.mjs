// Competitor `node-pg`: fastify, node:crypto and `pg`; effects are rows of an outbox that nobody delivers.

import { readFileSync } from 'node:fs'

import { args, serve } from './serve.mjs'
import { intoOutbox, open } from './shop.mjs'
import { reader } from './wechat.mjs'

const { keysFile, url } = args()
await serve(reader(JSON.parse(readFileSync(keysFile, 'utf8'))), await open(url, intoOutbox))
