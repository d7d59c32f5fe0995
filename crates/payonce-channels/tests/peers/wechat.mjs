// WeChat Pay V3 as npm `wechatpay-axios-plugin` does it: makes callbacks and answers, and judges ours.
//
// Here: a request as JSON on stdin, an answer as JSON on stdout; bytes are base64. Not here: any crypto or
// signed text of our own. Only the library's own calls may be refusals; everything else that fails is an error.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const { Aes, Formatter, Rsa } = createRequire(join(process.env.PAYONCE_PEERS, 'package.json'))('wechatpay-axios-plugin');

function headers({ private_key, serial, timestamp }, body) {
  const nonce = Formatter.nonce();
  const signature = Rsa.sign(Formatter.response(timestamp, nonce, body), Rsa.from(private_key, 'private'));
  return [
    ['Wechatpay-Nonce', nonce],
    ['Wechatpay-Serial', serial],
    ['Wechatpay-Signature', signature],
    ['Wechatpay-Signature-Type', 'WECHATPAY2-SHA256-RSA2048'],
    ['Wechatpay-Timestamp', timestamp],
  ];
}

function base64(text) {
  return Buffer.from(text, 'utf8').toString('base64');
}

const actions = {
  // A callback around a plaintext.
  callback(request) {
    const nonce = Formatter.nonce(12);
    const aad = request.associated_data;
    const body = JSON.stringify({
      id: '3f6e1d2c-0a1b-5c2d-8e3f-102030405060',
      create_time: '2026-01-02T03:04:07+08:00',
      resource_type: 'encrypt-resource',
      event_type: request.event_type,
      summary: '支付成功',
      resource: {
        original_type: request.original_type,
        algorithm: 'AEAD_AES_256_GCM',
        ciphertext: Aes.AesGcm.encrypt(request.plaintext, request.api_v3_key, nonce, aad),
        associated_data: aad,
        nonce,
      },
    });
    return { headers: headers(request, body), body: base64(body) };
  },

  // The headers of an answer with this body.
  answer(request) {
    const body = Buffer.from(request.body, 'base64').toString('utf8');
    return { headers: headers(request, body), body: request.body };
  },

  // Whether a message is signed, and what is in it if it is encrypted.
  check(request) {
    const have = Object.fromEntries(request.headers.map(([name, value]) => [name.toLowerCase(), value]));
    const body = Buffer.from(request.body, 'base64').toString('utf8');
    const text = Formatter.response(have['wechatpay-timestamp'], have['wechatpay-nonce'], body);
    if (!Rsa.verify(text, have['wechatpay-signature'], Rsa.from(request.public_key, 'public'))) {
      return { accepted: false, why: 'Rsa.verify' };
    }
    if (request.api_v3_key === undefined) return { accepted: true };
    const { resource } = JSON.parse(body);
    try {
      const { ciphertext, nonce, associated_data: aad } = resource;
      return { accepted: true, plaintext: Aes.AesGcm.decrypt(ciphertext, request.api_v3_key, nonce, aad ?? '') };
    } catch (error) {
      return { accepted: false, why: `Aes.AesGcm.decrypt: ${error.message}` };
    }
  },
};

const request = JSON.parse(readFileSync(0, 'utf8'));
console.log(JSON.stringify(actions[request.action](request)));
