// HTTP with fastify: the raw body in, 204 or a failure out; and the first lines that the benchmark reads.
//
// Here: listening, answering, ending. Not here: reading callbacks (`wechat.mjs`) and booking (`shop.mjs`).

import fastify from 'fastify'

/** Serves until SIGTERM; `books` is what `shop.mjs` opened, `close` runs after the last answer. */
export async function serve(read, books, { what = '', close = async () => {} } = {}) {
  const app = fastify({ logger: false, forceCloseConnections: true })
  // As text: the signature is over the bytes that arrived.
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (_request, body, done) => done(null, body))
  app.post('/notify/:account', async (request, reply) => {
    const payment = read(request.headers, request.body)
    if (payment === null) return reply.code(401).send({ code: 'FAIL', message: 'not believed' })
    if (await books.book(payment)) return reply.code(204).send()
    return reply.code(500).send({ code: 'FAIL', message: 'not booked' })
  })
  app.setErrorHandler((error, _request, reply) => {
    console.error(error.message)
    reply.code(500).send({ code: 'FAIL', message: 'try again' })
  })
  process.once('SIGTERM', async () => {
    await app.close()
    await close()
    await books.close()
  })
  await app.listen({ host: '127.0.0.1', port: 0 })
  console.log(`durable ${await books.durable()}${what}`)
  console.log(`callbacks 127.0.0.1:${app.server.address().port}`)
}

/** `node PROGRAM KEYS.json DATABASE_URL` */
export function args() {
  const [keysFile, url] = process.argv.slice(2)
  if (!url) throw new Error('usage: node PROGRAM KEYS.json DATABASE_URL')
  return { keysFile, url }
}
