// Standard Webhooks as npm `standardwebhooks` does it: signs, and judges ours.
//
// Here: a request as JSON on stdin, an answer as JSON on stdout. Not here: any crypto of our own.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const peers = createRequire(join(process.env.PAYONCE_PEERS, 'package.json'));
const { Webhook, WebhookVerificationError } = peers('standardwebhooks');

const actions = {
  sign({ secret, id, timestamp, body }) {
    return { signature: new Webhook(secret).sign(id, new Date(Number(timestamp) * 1000), body) };
  },
  check({ secret, id, timestamp, body, signature }) {
    const headers = { 'webhook-id': id, 'webhook-timestamp': timestamp, 'webhook-signature': signature };
    try {
      new Webhook(secret).verify(body, headers);
      return { accepted: true };
    } catch (error) {
      if (!(error instanceof WebhookVerificationError)) throw error;
      return { accepted: false, why: error.message };
    }
  },
};

const request = JSON.parse(readFileSync(0, 'utf8'));
console.log(JSON.stringify(actions[request.action](request)));
