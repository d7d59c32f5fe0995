"""Competitor `fastapi`: FastAPI on uvicorn, `wechatpayv3` and asyncpg; effects are rows of an outbox.

Here: one worker process per core behind one listening socket, as `uvicorn --workers` does it, with uvloop and
httptools, no access log; the callback is verified by the SDK's own `callback`. The worker processes share ten
connections. Not here: delivering effects.

python callbacks.py KEYS.json DATABASE_URL
"""

import json
import os
import signal
import socket
import sys
import time
from contextlib import asynccontextmanager

import asyncpg
import uvicorn
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from fastapi import FastAPI, Request, Response
from wechatpayv3 import WeChatPay, WeChatPayType

POOL = 10

# The SDK checks no window; this is that of every other receiver of the benchmark.
WINDOW_SECONDS = 3600

LOOK = "SELECT status, amount FROM t_order WHERE order_no = $1"
CLAIM = "INSERT INTO t_idempotency VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING true"
PAY = """
    UPDATE t_order SET status = 'PAID', trade_no = $2, paid_at = $3
    WHERE order_no = $1 AND status = 'PENDING' RETURNING true
"""
FLOW = "INSERT INTO t_order_flow (order_no, trade_no, amount, created_at) VALUES ($1, $2, $3, $4)"
OUTBOX = """
    INSERT INTO t_outbox (effect, order_no, payload, state, created_at)
    VALUES ('ship', $1, $2, 'ready', $3), ('points', $1, $2, 'ready', $3)
"""


class Refused(Exception):
    """The order is not what the payment is for."""


def reader(keys):
    """The SDK in public-key mode, which asks nobody. It wants a merchant's key, which is used for nothing here."""
    merchant_key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return WeChatPay(
        wechatpay_type=WeChatPayType.NATIVE,
        mchid=keys["mchid"],
        private_key=merchant_key.decode(),
        cert_serial_no="0",
        appid=keys["app_id"],
        apiv3_key=keys["api_v3_key"],
        public_key=keys["public_key_pem"],
        public_key_id=keys["public_key_id"],
    )


async def book(pool, payment):
    """Whether the payment is in the books, durably."""
    order_no, amount = payment["out_trade_no"], payment["amount"]["total"]
    async with pool.acquire() as connection:
        order = await connection.fetchrow(LOOK, order_no)
        if order is None or order["amount"] != amount:
            return False
        if order["status"] == "PAID":
            return True
        try:
            async with connection.transaction():
                await write(connection, payment, order_no, amount)
        except Refused:
            return False
        return True


async def write(connection, payment, order_no, amount):
    trade_no, now = payment["transaction_id"], time.time_ns() // 1000
    if not await connection.fetchval(CLAIM, f"{payment['mchid']}:{trade_no}", now):
        return
    if not await connection.fetchval(PAY, order_no, trade_no, now):
        raise Refused
    await connection.execute(FLOW, order_no, trade_no, amount, now)
    payload = json.dumps({"order_no": order_no, "trade_no": trade_no, "amount": amount})
    await connection.execute(OUTBOX, order_no, payload, now)


async def settings(connection):
    names = ["server_version", "fsync", "synchronous_commit", "full_page_writes"]
    version, *others = [await connection.fetchval(f"SHOW {name}") for name in names]
    said = ", ".join(f"{name} {value}" for name, value in zip(names[1:], others))
    return f"PostgreSQL {version}, {said}"


def application(keys, wechat, url, connections, ready):
    @asynccontextmanager
    async def lifespan(app):
        app.state.pool = await asyncpg.create_pool(url, min_size=connections, max_size=connections)
        async with app.state.pool.acquire() as connection:
            os.write(ready, f"{await settings(connection)}\n".encode())
        yield
        await app.state.pool.close()

    app = FastAPI(lifespan=lifespan, openapi_url=None)

    @app.post("/notify/{account}")
    async def notify(account: str, request: Request):
        callback = wechat.callback(request.headers, await request.body())
        timestamp = int(request.headers.get("wechatpay-timestamp", 0))
        if not callback or abs(time.time() - timestamp) > WINDOW_SECONDS:
            return Response(status_code=401)
        payment = callback["resource"]
        is_ours = payment["mchid"] == keys["mchid"] and payment["appid"] == keys["app_id"]
        if not is_ours or payment["trade_state"] != "SUCCESS":
            return Response(status_code=401)
        return Response(status_code=204 if await book(app.state.pool, payment) else 500)

    return app


def main():
    keys_file, url = sys.argv[1:]
    with open(keys_file, encoding="utf-8") as file:
        keys = json.load(file)
    wechat = reader(keys)
    workers = os.cpu_count() or 1
    connections = max(1, POOL // workers)
    listener = socket.create_server(("127.0.0.1", 0), backlog=2048)
    said, ready = os.pipe()
    children = []
    for _ in range(workers):
        child = os.fork()
        if child == 0:
            app = application(keys, wechat, url, connections, ready)
            config = uvicorn.Config(app, log_level="error", access_log=False, loop="uvloop", http="httptools")
            uvicorn.Server(config).run(sockets=[listener])
            os._exit(0)
        children.append(child)

    def stop(*_):
        for child in children:
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    os.close(ready)
    with os.fdopen(said) as lines:
        durable = [lines.readline() for _ in children]
    print(f"durable {durable[0].strip()}, {workers} workers, each with a pool of {connections}", flush=True)
    print("callbacks %s:%d" % listener.getsockname(), flush=True)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
