// Alipay as npm `alipay-sdk` does it: judges our notifications and answers. It knows UTF-8 only.
//
// Here: a request as JSON on stdin, an answer as JSON on stdout; bytes are base64. Not here: any crypto or
// signed text of our own.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const { AlipaySdk } = createRequire(join(process.env.PAYONCE_PEERS, 'package.json'))('alipay-sdk');

function client(request) {
  return new AlipaySdk({
    appId: '2021000000000001',
    privateKey: request.private_key,
    keyType: 'PKCS8',
    alipayPublicKey: request.public_key,
  });
}

const actions = {
  // A notification, split into fields as a web framework would.
  notification(request) {
    const fields = Object.fromEntries(new URLSearchParams(Buffer.from(request.body, 'base64').toString('utf8')));
    return { accepted: client(request).checkNotifySignV2(fields), subject: fields.subject };
  },

  // A gateway's answer. The library throws what it does not believe.
  answer(request) {
    const text = Buffer.from(request.body, 'base64').toString('utf8');
    const { sign } = JSON.parse(text);
    try {
      client(request).checkResponseSign(text, request.node, sign);
      return { accepted: true };
    } catch (error) {
      if (error.name !== 'AlipayRequestError') throw error;
      return { accepted: false, why: error.message };
    }
  },
};

const request = JSON.parse(readFileSync(0, 'utf8'));
console.log(JSON.stringify(actions[request.action](request)));
