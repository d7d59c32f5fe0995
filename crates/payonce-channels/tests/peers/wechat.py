# WeChat Pay V3 as PyPI `wechatpayv3` does it: judges our callbacks and answers, and signs answers.
#
# Here: a request as JSON on stdin, an answer as JSON on stdout; bytes are base64. Not here: any crypto or
# signed text of our own. The library asks the real platform when it meets a serial it does not know, so that
# call is taken away from it: nothing here may leave the machine.

import base64
import json
import sys

import wechatpayv3.core
from wechatpayv3 import WeChatPay
from wechatpayv3.utils import load_public_key, rsa_verify

wechatpayv3.core.Core._update_certificates = lambda self: None


def client(request):
    keys = {"cert_dir": request.get("certificates")}
    if keys["cert_dir"] is None:
        keys = {"public_key": request["public_key"], "public_key_id": request["serial"]}
    return WeChatPay(
        wechatpay_type=wechatpayv3.WeChatPayType.JSAPI,
        mchid=request["mchid"],
        private_key=request["private_key"],
        cert_serial_no=request["merchant_serial"],
        appid="wx00000000000000aa",
        apiv3_key=request["api_v3_key"],
        notify_url="https://shop.example/notify",
        **keys,
    )


def callback(request):
    """What the library makes of a callback: `callback()` gives None for what it does not believe."""
    data = client(request).callback(dict(request["headers"]), base64.b64decode(request["body"]))
    return {"accepted": bool(data), "resource": (data or {}).get("resource")}


def check(request):
    """Whether an answer is signed."""
    have = {name.lower(): value for name, value in request["headers"]}
    right = rsa_verify(
        have["wechatpay-timestamp"],
        have["wechatpay-nonce"],
        base64.b64decode(request["body"]).decode("utf-8"),
        have["wechatpay-signature"],
        load_public_key(request["public_key"]),
    )
    return {"accepted": bool(right)}


def answer(request):
    """The headers of an answer with this body, signed with the given key."""
    nonce = "Q0nceQ0nceQ0nceQ0nceQ0nceQ0nce32"
    body = base64.b64decode(request["body"]).decode("utf-8")
    signature = client(request).sign([request["timestamp"], nonce, body])
    headers = [
        ["Wechatpay-Timestamp", request["timestamp"]],
        ["Wechatpay-Nonce", nonce],
        ["Wechatpay-Serial", request["serial"]],
        ["Wechatpay-Signature", signature],
        ["Wechatpay-Signature-Type", "WECHATPAY2-SHA256-RSA2048"],
    ]
    return {"headers": headers, "body": request["body"]}


request = json.load(sys.stdin.buffer)
print(json.dumps({"callback": callback, "check": check, "answer": answer}[request["action"]](request)))
