# Standard Webhooks as PyPI `standardwebhooks` does it: signs, and judges ours.
#
# Here: a request as JSON on stdin, an answer as JSON on stdout. Not here: any crypto of our own.

import json
import sys
from datetime import datetime, timezone

from standardwebhooks import Webhook, WebhookVerificationError


def sign(request):
    moment = datetime.fromtimestamp(int(request["timestamp"]), timezone.utc)
    return {"signature": Webhook(request["secret"]).sign(request["id"], moment, request["body"])}


def check(request):
    headers = {f"webhook-{name}": request[name] for name in ("id", "timestamp", "signature")}
    try:
        Webhook(request["secret"]).verify(request["body"], headers)
        return {"accepted": True}
    except WebhookVerificationError as error:
        return {"accepted": False, "why": str(error)}


request = json.load(sys.stdin.buffer)
print(json.dumps({"sign": sign, "check": check}[request["action"]](request)))
