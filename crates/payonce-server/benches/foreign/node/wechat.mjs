// Reading a WeChat Pay callback with node:crypto: signature, window, decryption.
//
// Here: what a merchant's own code does who uses no SDK; the key is parsed once. Not here: HTTP (`serve.mjs`) and
// the books (`shop.mjs`).

import { createDecipheriv, createPublicKey, verify } from 'node:crypto'

// An hour, like every other receiver of the benchmark: its callbacks are signed long before they are sent.
const WINDOW_SECONDS = 3600

const TAG_BYTES = 16

/** A function from headers and raw body to a payment, or null if it cannot be believed. */
export function reader(keys) {
  const publicKey = createPublicKey(keys.public_key_pem)
  const apiV3Key = Buffer.from(keys.api_v3_key, 'utf8')

  return (headers, body) => {
    const timestamp = headers['wechatpay-timestamp']
    const signature = headers['wechatpay-signature']
    if (!signature || headers['wechatpay-serial'] !== keys.public_key_id) return null
    if (!(Math.abs(Date.now() / 1000 - Number(timestamp)) <= WINDOW_SECONDS)) return null
    const signed = Buffer.from(`${timestamp}\n${headers['wechatpay-nonce']}\n${body}\n`, 'utf8')
    if (!verify('RSA-SHA256', signed, publicKey, Buffer.from(signature, 'base64'))) return null

    const payment = JSON.parse(decrypt(apiV3Key, JSON.parse(body).resource))
    const isOurs = payment.mchid === keys.mchid && payment.appid === keys.app_id
    return isOurs && payment.trade_state === 'SUCCESS' ? payment : null
  }
}

function decrypt(key, resource) {
  const sealed = Buffer.from(resource.ciphertext, 'base64')
  const decipher = createDecipheriv('aes-256-gcm', key, resource.nonce)
  decipher.setAuthTag(sealed.subarray(-TAG_BYTES))
  decipher.setAAD(Buffer.from(resource.associated_data ?? '', 'utf8'))
  return decipher.update(sealed.subarray(0, -TAG_BYTES), undefined, 'utf8') + decipher.final('utf8')
}
