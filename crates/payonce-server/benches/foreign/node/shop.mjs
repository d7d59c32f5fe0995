// The shop's books through `pg`: look, then one transaction.
//
// Here: a pool of ten, named statements (prepared once per connection), the unique key that decides. What the
// payment causes is the caller's: `cause` runs inside of the transaction. Not here: HTTP and WeChat Pay.

import pg from 'pg'

const POOL = 10

const LOOK = { name: 'look', text: 'SELECT status, amount FROM t_order WHERE order_no = $1' }
const CLAIM = { name: 'claim', text: 'INSERT INTO t_idempotency VALUES ($1, $2) ON CONFLICT DO NOTHING' }
const PAY = {
  name: 'pay',
  text: `UPDATE t_order SET status = 'PAID', trade_no = $2, paid_at = $3 WHERE order_no = $1 AND status = 'PENDING'`,
}
const FLOW = {
  name: 'flow',
  text: 'INSERT INTO t_order_flow (order_no, trade_no, amount, created_at) VALUES ($1, $2, $3, $4)',
}
const OUTBOX = {
  name: 'outbox',
  text: `INSERT INTO t_outbox (effect, order_no, payload, state, created_at)
         VALUES ('ship', $1, $2, 'ready', $3), ('points', $1, $2, 'ready', $3)`,
}

/** Two rows of an outbox that somebody else would deliver. */
export async function intoOutbox(client, payment, payload, now) {
  await client.query({ ...OUTBOX, values: [payment.out_trade_no, payload, now] })
}

/** The books: `book(payment)` is true once the payment is durable; `durable()` says what the server promises. */
export async function open(url, cause) {
  const pool = new pg.Pool({ connectionString: url, max: POOL, min: POOL, idleTimeoutMillis: 0 })
  // A broken idle connection is replaced at its next use.
  pool.on('error', () => {})

  async function book(payment) {
    const client = await pool.connect()
    try {
      return await look(client, payment, cause)
    } finally {
      client.release()
    }
  }

  async function durable() {
    const setting = async (name) => (await pool.query(`SHOW ${name}`)).rows[0][name]
    const names = ['fsync', 'synchronous_commit', 'full_page_writes']
    const said = await Promise.all(names.map(async (name) => `${name} ${await setting(name)}`))
    return `PostgreSQL ${await setting('server_version')}, ${said.join(', ')}, pool of ${POOL}`
  }

  return { book, durable, close: () => pool.end() }
}

async function look(client, payment, cause) {
  const orderNo = payment.out_trade_no
  const { rows } = await client.query({ ...LOOK, values: [orderNo] })
  if (rows.length === 0 || Number(rows[0].amount) !== payment.amount.total) return false
  if (rows[0].status === 'PAID') return true

  await client.query('BEGIN')
  try {
    const booked = await transaction(client, payment, cause)
    await client.query(booked === 'new' ? 'COMMIT' : 'ROLLBACK')
    return booked !== 'refused'
  } catch (error) {
    await client.query('ROLLBACK')
    throw error
  }
}

async function transaction(client, payment, cause) {
  const orderNo = payment.out_trade_no
  const tradeNo = payment.transaction_id
  const amount = payment.amount.total
  const now = Date.now() * 1000
  const claimed = await client.query({ ...CLAIM, values: [`${payment.mchid}:${tradeNo}`, now] })
  if (claimed.rowCount === 0) return 'repeated'
  const paid = await client.query({ ...PAY, values: [orderNo, tradeNo, now] })
  if (paid.rowCount !== 1) return 'refused'
  await client.query({ ...FLOW, values: [orderNo, tradeNo, amount, now] })
  await cause(client, payment, JSON.stringify({ order_no: orderNo, trade_no: tradeNo, amount }), now)
  return 'new'
}
