# Alipay as PyPI `alipay-sdk-python` does it: signs notifications and answers, in UTF-8 and GBK, and judges ours.
#
# Here: a request as JSON on stdin, an answer as JSON on stdout; bytes are base64. Not here: any crypto or
# signed text of our own. The library wants private keys as PKCS#1.

import base64
import json
import sys
from urllib.parse import parse_qsl, urlencode

import rsa
from alipay.aop.api.util.SignatureUtils import get_sign_content, sign_with_rsa2, verify_with_rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)


def private_key(request):
    key = load_pem_private_key(request["private_key"].encode(), None)
    return base64.b64encode(key.private_bytes(Encoding.DER, PrivateFormat.TraditionalOpenSSL, NoEncryption())).decode()


def signed_text(fields):
    return get_sign_content({name: value for name, value in fields if name not in ("sign", "sign_type")})


def notification(request):
    """A notification of these fields."""
    fields, charset = request["fields"], request["charset"]
    sign = sign_with_rsa2(private_key(request), signed_text(fields), charset)
    body = urlencode([*map(tuple, fields), ("sign", sign)], encoding=charset).encode("ascii")
    return {"body": base64.b64encode(body).decode()}


def answer(request):
    """A gateway's answer around the node's text."""
    text, charset = request["text"], request["charset"]
    sign = sign_with_rsa2(private_key(request), text, charset)
    body = f'{{"{request["node"]}":{text},"sign":"{sign}"}}'.encode(charset)
    return {"body": base64.b64encode(body).decode()}


def check(request):
    """Whether a notification is signed, and how its subject reads."""
    charset = request["charset"]
    body = base64.b64decode(request["body"]).decode("ascii")
    fields = parse_qsl(body, keep_blank_values=True, strict_parsing=True, encoding=charset, errors="strict")
    named = dict(fields)
    try:
        right = verify_with_rsa(request["public_key"], signed_text(fields).encode(charset), named["sign"])
    except rsa.VerificationError as error:
        return {"accepted": False, "why": str(error)}
    return {"accepted": right, "subject": named["subject"]}


request = json.load(sys.stdin.buffer)
print(json.dumps({"notification": notification, "answer": answer, "check": check}[request["action"]](request)))
