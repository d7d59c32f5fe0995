//! WeChat Pay APIv3 as seen from the merchant: payloads, the encrypted envelope, signed headers, signed API answers.
//!
//! Here: a second reading of the specification, independent of payonce's own, and only what the platform does right.
//! Not here: what it (or an attacker) does wrong (`faults`), and X.509: in certificate mode the key bears a serial.

use super::{Notification, Platform};
use crate::keys::{RsaKey, certain};
use crate::message::{Request, Response};
use crate::text;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::Rng;
use rand::rngs::StdRng;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;

/// The name of the only signature algorithm in use, in headers and in the `Authorization` scheme.
pub const SIGNATURE_TYPE: &str = "WECHATPAY2-SHA256-RSA2048";

/// With which of its two keys the platform signs a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Platform certificate (平台证书): `Wechatpay-Serial` is the certificate's hexadecimal serial.
    Certificate,
    /// WeChat Pay public key (微信支付公钥): `Wechatpay-Serial` is `PUB_KEY_ID_…`.
    PublicKey,
}

/// What may differ between two deliveries of one event. The default is what the platform most probably does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disorder {
    /// Encrypt the resource anew for each delivery (other nonce, other ciphertext).
    pub reencrypt: bool,
    /// Give each delivery an envelope `id` of its own.
    pub fresh_id: bool,
    /// Sign this delivery in this mode; `None`: in the platform's.
    pub mode: Option<Mode>,
    /// Throw a coin for the mode at each delivery, as happens in the week of a switch (灰度).
    pub alternate: bool,
    /// Leave out `Wechatpay-Signature-Type`, as captures of 2021 do.
    pub without_signature_type: bool,
}

impl Default for Disorder {
    fn default() -> Self {
        Self { reencrypt: true, fresh_id: false, mode: None, alternate: false, without_signature_type: false }
    }
}

/// One merchant (or service provider) number with everything WeChat Pay and the merchant hold for it.
#[derive(Clone)]
pub struct Wechat {
    /// The merchant number; for [`Wechat::partner_payment`] it is the service provider's.
    pub mchid: String,
    /// The app the orders were placed with.
    pub appid: String,
    /// The APIv3 key: 32 ASCII characters.
    pub api_v3_key: String,
    /// Serial of the platform certificate: 40 upper-case hexadecimal digits.
    pub serial: String,
    /// The platform certificate's key.
    pub certificate_key: RsaKey,
    /// Id of the WeChat Pay public key, `PUB_KEY_ID_` and digits.
    pub pub_key_id: String,
    /// The key behind the WeChat Pay public key.
    pub public_key: RsaKey,
    /// Serial of the *merchant's* API certificate, as in `Authorization: … serial_no="…"`.
    pub merchant_serial: String,
    /// The merchant's API key, whose private half the merchant signs its requests with.
    pub merchant_key: RsaKey,
    /// Mode in which messages are signed unless a delivery says otherwise.
    pub mode: Mode,
}

impl fmt::Debug for Wechat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wechat").field("mchid", &self.mchid).field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// A sub-order of a combined payment (合单).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubOrder {
    /// The merchant that started the sub-order; for e-commerce the provider's own number.
    pub mchid: String,
    /// The second-level merchant, for partners and e-commerce.
    pub sub_mchid: Option<String>,
    /// The sub-order's number.
    pub out_trade_no: String,
    /// The sub-order's WeChat number.
    pub transaction_id: String,
    /// The sub-order's amount in fen.
    pub total_fen: i64,
}

impl Wechat {
    /// A merchant with fresh keys, signing in public-key mode as for merchants of today.
    #[must_use]
    pub fn new(mchid: impl Into<String>) -> Self {
        let mut rng = rand::rng();
        let mut keys = RsaKey::generate_many(3).into_iter();
        let mut next = || keys.next().unwrap_or_else(RsaKey::generate);
        Self {
            mchid: mchid.into(),
            appid: format!("wx{}", text::hex_upper(&mut rng, 16).to_lowercase()),
            api_v3_key: text::letters(&mut rng, 32),
            serial: text::hex_upper(&mut rng, 40),
            certificate_key: next(),
            pub_key_id: format!("PUB_KEY_ID_{}", text::digits(&mut rng, 34)),
            public_key: next(),
            merchant_serial: text::hex_upper(&mut rng, 40),
            merchant_key: next(),
            mode: Mode::PublicKey,
        }
    }

    /// The serial and key that belong to a mode.
    #[must_use]
    pub fn signer(&self, mode: Mode) -> (&str, &RsaKey) {
        match mode {
            Mode::Certificate => (&self.serial, &self.certificate_key),
            Mode::PublicKey => (&self.pub_key_id, &self.public_key),
        }
    }

    /// The plaintext of a direct merchant's successful payment. Edit it freely before [`Wechat::notify`].
    #[must_use]
    pub fn payment(&self, out_trade_no: &str, transaction_id: &str, total_fen: i64) -> Value {
        json!({
            "appid": self.appid,
            "mchid": self.mchid,
            "out_trade_no": out_trade_no,
            "transaction_id": transaction_id,
            "trade_type": "JSAPI",
            "trade_state": "SUCCESS",
            "trade_state_desc": "支付成功",
            "bank_type": "OTHERS",
            "attach": "",
            "success_time": text::beijing_rfc3339(text::now_unix()),
            "payer": { "openid": openid(&self.appid, out_trade_no) },
            "amount": amount(total_fen),
        })
    }

    /// The plaintext of a payment that a service provider (服务商) placed for `sub_mchid`.
    #[must_use]
    pub fn partner_payment(&self, sub_mchid: &str, out_trade_no: &str, transaction_id: &str, total_fen: i64) -> Value {
        json!({
            "sp_appid": self.appid,
            "sp_mchid": self.mchid,
            "sub_mchid": sub_mchid,
            "out_trade_no": out_trade_no,
            "transaction_id": transaction_id,
            "trade_type": "JSAPI",
            "trade_state": "SUCCESS",
            "trade_state_desc": "支付成功",
            "bank_type": "CMB_CREDIT",
            "attach": "",
            "success_time": text::beijing_rfc3339(text::now_unix()),
            "payer": { "sp_openid": openid(&self.appid, out_trade_no) },
            "amount": amount(total_fen),
        })
    }

    /// The plaintext of a combined payment (合单): one notification for all its sub-orders.
    #[must_use]
    pub fn combined(&self, combine_out_trade_no: &str, sub_orders: &[SubOrder]) -> Value {
        let openid = openid(&self.appid, combine_out_trade_no);
        // The combined page prints milliseconds where the single payment has none.
        let time = text::beijing_rfc3339(text::now_unix()).replace("+08:00", ".120+08:00");
        let sub_orders: Vec<Value> = sub_orders.iter().map(|sub| sub_order(sub, &time)).collect();
        json!({
            "combine_appid": self.appid,
            "combine_mchid": self.mchid,
            "combine_out_trade_no": combine_out_trade_no,
            "combine_payer_info": { "openid": openid },
            "scene_info": { "device_id": "POS1:1" },
            "sub_orders": sub_orders,
        })
    }

    /// The plaintext of a direct merchant's successful refund. For another end, edit `refund_status` to `ABNORMAL` or
    /// `CLOSED` and remove `success_time`.
    #[must_use]
    pub fn refund(
        &self,
        out_trade_no: &str,
        transaction_id: &str,
        out_refund_no: &str,
        total_fen: i64,
        refund_fen: i64,
    ) -> Value {
        json!({
            "mchid": self.mchid,
            "out_trade_no": out_trade_no,
            "transaction_id": transaction_id,
            "out_refund_no": out_refund_no,
            "refund_id": format!("50300{}", text::digits_of(out_refund_no, 24)),
            "refund_status": "SUCCESS",
            "success_time": text::beijing_rfc3339(text::now_unix()),
            "user_received_account": "支付用户零钱",
            "amount": { "total": total_fen, "refund": refund_fen, "payer_total": total_fen, "payer_refund": refund_fen },
        })
    }

    /// Turns a direct merchant's refund into that of a service provider's `sub_mchid`.
    #[must_use]
    pub fn as_partner(&self, mut refund: Value, sub_mchid: &str) -> Value {
        if let Some(fields) = refund.as_object_mut() {
            fields.remove("mchid");
            fields.insert("sp_mchid".into(), json!(self.mchid));
            fields.insert("sub_mchid".into(), json!(sub_mchid));
        }
        refund
    }

    /// The plaintext of a profit-sharing receipt (分账动账通知). In practice it arrives as `TRANSACTION.SUCCESS` too.
    #[must_use]
    pub fn profit_sharing(&self, transaction_id: &str, out_order_no: &str, account: &str, amount_fen: i64) -> Value {
        json!({
            "mchid": self.mchid,
            "transaction_id": transaction_id,
            "order_id": format!("30000{}", text::digits_of(out_order_no, 24)),
            "out_order_no": out_order_no,
            "receiver": {
                "type": "MERCHANT_ID", "account": account, "amount": amount_fen, "description": "分账给商户",
            },
            "success_time": text::beijing_rfc3339(text::now_unix()),
        })
    }

    /// The plaintext of a merchant transfer (商家转账) that reached `state`: `SUCCESS`, `FAIL` or `CANCELLED`.
    #[must_use]
    pub fn transfer(&self, out_bill_no: &str, amount_fen: i64, state: &str) -> Value {
        let now = text::beijing_rfc3339(text::now_unix());
        json!({
            "mch_id": self.mchid,
            "out_bill_no": out_bill_no,
            "transfer_bill_no": format!("1330{}", text::digits_of(out_bill_no, 26)),
            "state": state,
            "transfer_amount": amount_fen,
            "openid": openid(&self.appid, out_bill_no),
            "create_time": now,
            "update_time": now,
        })
    }

    /// An event about this plaintext. Its id depends on what happened alone, its creation time is the plaintext's
    /// `success_time`, or now.
    #[must_use]
    pub fn notify(&self, plaintext: &Value, event_type: &str, original_type: &str) -> Event {
        let bytes = plaintext.to_string();
        let created = plaintext.get("success_time").and_then(Value::as_str).map(ToOwned::to_owned);
        Event {
            id: text::uuid_of(format!("{event_type} {bytes}").as_bytes()),
            create_time: created.unwrap_or_else(|| text::beijing_rfc3339(text::now_unix())),
            resource_type: "encrypt-resource".into(),
            event_type: event_type.into(),
            summary: summary(event_type).into(),
            original_type: original_type.into(),
            associated_data: Some(original_type.into()),
            plaintext: bytes.into_bytes(),
            disorder: Disorder::default(),
            wechat: self.clone(),
        }
    }

    /// The event of a successful payment, direct, partner or combined.
    #[must_use]
    pub fn notify_payment(&self, plaintext: &Value) -> Event {
        self.notify(plaintext, "TRANSACTION.SUCCESS", "transaction")
    }

    /// The event of a refund, named after its `refund_status`.
    #[must_use]
    pub fn notify_refund(&self, plaintext: &Value) -> Event {
        let status = plaintext.get("refund_status").and_then(Value::as_str).unwrap_or("SUCCESS");
        self.notify(plaintext, &format!("REFUND.{status}"), "refund")
    }

    /// A signed 200 answer of the platform's API, such as to an order query.
    #[must_use]
    pub fn answer(&self, body: &Value, now: i64) -> Response {
        self.answer_with(200, body.to_string().into_bytes(), now)
    }

    /// A signed answer with any status and body; an empty body is signed as an empty line.
    #[must_use]
    pub fn answer_with(&self, status: u16, body: Vec<u8>, now: i64) -> Response {
        let mut rng = rand::rng();
        let mut headers = self.signed_headers(self.mode, now, &text::letters(&mut rng, 32), &body);
        headers.push(("Content-Type".into(), "application/json; charset=utf-8".into()));
        headers.push(("Request-ID".into(), format!("{}-0", text::hex_upper(&mut rng, 32))));
        Response { status, headers, body }
    }

    /// An answer without signature, as gateways in between give errors: nothing to base a decision on.
    #[must_use]
    pub fn answer_unsigned(&self, status: u16, body: &Value) -> Response {
        let headers = vec![("Content-Type".into(), "application/json; charset=utf-8".into())];
        Response { status, headers, body: body.to_string().into_bytes() }
    }

    /// Checks a merchant's request to the API by its `Authorization` header.
    ///
    /// # Errors
    /// Says what is wrong with it: scheme, merchant number, serial, time (more than 5 minutes off) or signature.
    pub fn check_authorization(
        &self,
        method: &str,
        path_and_query: &str,
        body: &[u8],
        authorization: &str,
        now: i64,
    ) -> Result<(), String> {
        let items = authorization
            .strip_prefix(SIGNATURE_TYPE)
            .and_then(|rest| rest.strip_prefix(' '))
            .ok_or_else(|| format!("scheme is not {SIGNATURE_TYPE}"))?;
        let item = |name: &str| {
            let quoted = items.split(',').filter_map(|item| item.trim().split_once('='));
            let value = quoted.into_iter().find(|(have, _)| *have == name).map(|(_, value)| value.trim_matches('"'));
            value.ok_or_else(|| format!("{name} is missing"))
        };
        if item("mchid")? != self.mchid {
            return Err("mchid is another merchant's".into());
        }
        if !item("serial_no")?.eq_ignore_ascii_case(&self.merchant_serial) {
            return Err("serial_no is not the merchant certificate's".into());
        }
        let timestamp = item("timestamp")?;
        let sent: i64 = timestamp.parse().map_err(|_| "timestamp is not a number".to_owned())?;
        if sent.abs_diff(now) > 300 {
            return Err("timestamp is more than 5 minutes off".into());
        }
        let text = request_text(method, path_and_query, timestamp, item("nonce_str")?, body);
        if self.merchant_key.verify(&text, item("signature")?) { Ok(()) } else { Err("signature is wrong".into()) }
    }

    /// The `Wechatpay-*` headers over this body, in the order of real captures.
    #[must_use]
    pub fn signed_headers(&self, mode: Mode, now: i64, nonce: &str, body: &[u8]) -> Vec<(String, String)> {
        let (serial, key) = self.signer(mode);
        let timestamp = now.to_string();
        let signature = key.sign_sha256(&signed_text(&timestamp, nonce, body));
        vec![
            ("Wechatpay-Nonce".into(), nonce.into()),
            ("Wechatpay-Serial".into(), serial.into()),
            ("Wechatpay-Signature".into(), signature),
            ("Wechatpay-Signature-Type".into(), SIGNATURE_TYPE.into()),
            ("Wechatpay-Timestamp".into(), timestamp),
        ]
    }
}

/// One event at WeChat Pay, sent until somebody takes it. All parts may be edited before it is sent.
#[derive(Clone, Debug)]
pub struct Event {
    /// The envelope's `id`, stable between deliveries unless the disorder says otherwise.
    pub id: String,
    /// The envelope's `create_time`, stable between deliveries.
    pub create_time: String,
    /// `encrypt-resource`.
    pub resource_type: String,
    /// Such as `TRANSACTION.SUCCESS`.
    pub event_type: String,
    /// Chinese text for human readers.
    pub summary: String,
    /// Such as `transaction` or `refund`.
    pub original_type: String,
    /// Additional authenticated data; `None` leaves the member out, which means the same as empty.
    pub associated_data: Option<String>,
    /// What is encrypted.
    pub plaintext: Vec<u8>,
    /// How deliveries differ when the courier makes them.
    pub disorder: Disorder,
    /// Who sends it, with its keys. Faults put other keys here.
    pub wechat: Wechat,
}

impl Event {
    /// One delivery: encrypted and signed with fresh nonce and timestamp, chance from the system.
    #[must_use]
    pub fn send(&self, now_unix: i64, disorder: Disorder) -> Request {
        self.send_with(now_unix, disorder, &mut rand::rng())
    }

    /// One delivery with chance from `rng`.
    #[must_use]
    pub fn send_with(&self, now_unix: i64, disorder: Disorder, rng: &mut impl Rng) -> Request {
        let id = if disorder.fresh_id { text::uuid_of(text::letters(rng, 32).as_bytes()) } else { self.id.clone() };
        // Without re-encryption the nonce follows from the event, so each delivery has the same ciphertext.
        let nonce = if disorder.reencrypt { text::letters(rng, 12) } else { text::digits_of(&self.id, 12) };
        let mode = match disorder {
            Disorder { alternate: true, .. } if rng.random() => Mode::Certificate,
            Disorder { alternate: true, .. } => Mode::PublicKey,
            _ => disorder.mode.unwrap_or(self.wechat.mode),
        };
        let body = self.body(&id, &nonce);
        let mut headers: Vec<(String, String)> = [
            ("User-Agent", "Mozilla/4.0"),
            ("Accept", "*/*"),
            ("Content-Type", "application/json"),
            ("Cache-Control", "no-cache"),
            ("Pragma", "no-cache"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
        headers.extend(self.wechat.signed_headers(mode, now_unix, &text::letters(rng, 32), &body));
        if disorder.without_signature_type {
            headers.retain(|(name, _)| name != "Wechatpay-Signature-Type");
        }
        Request { headers, body }
    }

    fn body(&self, id: &str, nonce: &str) -> Vec<u8> {
        let aad = self.associated_data.as_deref();
        let envelope = Envelope {
            id,
            create_time: &self.create_time,
            resource_type: &self.resource_type,
            event_type: &self.event_type,
            summary: &self.summary,
            resource: Resource {
                original_type: &self.original_type,
                algorithm: "AEAD_AES_256_GCM",
                ciphertext: encrypt(&self.wechat.api_v3_key, nonce, aad.unwrap_or_default(), &self.plaintext),
                associated_data: aad,
                nonce,
            },
        };
        certain(serde_json::to_vec(&envelope), "writing an envelope")
    }
}

impl Notification for Event {
    fn platform(&self) -> Platform {
        Platform::Wechat
    }

    fn id(&self) -> String {
        self.id.clone()
    }

    fn request(&self, now: i64, rng: &mut StdRng) -> Request {
        self.send_with(now, self.disorder, rng)
    }
}

/// Members in the order of captured bodies.
#[derive(Serialize)]
struct Envelope<'a> {
    id: &'a str,
    create_time: &'a str,
    resource_type: &'a str,
    event_type: &'a str,
    summary: &'a str,
    resource: Resource<'a>,
}

#[derive(Serialize)]
struct Resource<'a> {
    original_type: &'a str,
    algorithm: &'static str,
    ciphertext: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    associated_data: Option<&'a str>,
    nonce: &'a str,
}

/// AES-256-GCM with the key's and nonce's characters as they are; base64 of ciphertext and tag.
///
/// # Panics
/// When the key has not 32 or the nonce not 12 bytes: the simulation is set up wrong.
#[must_use]
pub fn encrypt(api_v3_key: &str, nonce: &str, associated_data: &str, plaintext: &[u8]) -> String {
    let (key, nonce) = certain(cipher(api_v3_key, nonce).ok_or("key or nonce has a wrong length"), "encrypting");
    let mut bytes = plaintext.to_vec();
    certain(key.seal_in_place_append_tag(nonce, Aad::from(associated_data.as_bytes()), &mut bytes), "encrypting");
    STANDARD.encode(bytes)
}

/// Undoes [`encrypt`]; `None` when anything about it is wrong.
#[must_use]
pub fn decrypt(api_v3_key: &str, nonce: &str, associated_data: &str, ciphertext: &str) -> Option<Vec<u8>> {
    let (key, nonce) = cipher(api_v3_key, nonce)?;
    let mut bytes = STANDARD.decode(ciphertext).ok()?;
    let plain = key.open_in_place(nonce, Aad::from(associated_data.as_bytes()), &mut bytes).ok()?;
    Some(plain.to_vec())
}

fn cipher(api_v3_key: &str, nonce: &str) -> Option<(LessSafeKey, Nonce)> {
    let key = UnboundKey::new(&AES_256_GCM, api_v3_key.as_bytes()).ok()?;
    let nonce = Nonce::try_assume_unique_for_key(nonce.as_bytes()).ok()?;
    Some((LessSafeKey::new(key), nonce))
}

/// What the platform signs, for callbacks and answers alike: three lines, each ended by a line feed.
#[must_use]
pub fn signed_text(timestamp: &str, nonce: &str, body: &[u8]) -> Vec<u8> {
    [timestamp.as_bytes(), b"\n", nonce.as_bytes(), b"\n", body, b"\n"].concat()
}

/// What a merchant signs for an API request: five lines, each ended by a line feed.
#[must_use]
pub fn request_text(method: &str, path_and_query: &str, timestamp: &str, nonce: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("{method}\n{path_and_query}\n{timestamp}\n{nonce}\n");
    [head.as_bytes(), body, b"\n"].concat()
}

fn amount(total_fen: i64) -> Value {
    json!({ "total": total_fen, "payer_total": total_fen, "currency": "CNY", "payer_currency": "CNY" })
}

/// A user under an app: the same for the same order, 28 characters like real ones.
fn openid(appid: &str, number: &str) -> String {
    format!("oSim{}", text::digits_of(&format!("{appid} {number}"), 24))
}

fn sub_order(sub: &SubOrder, time: &str) -> Value {
    let mut value = json!({
        "mchid": sub.mchid,
        "out_trade_no": sub.out_trade_no,
        "transaction_id": sub.transaction_id,
        "trade_type": "JSAPI",
        "trade_state": "SUCCESS",
        "bank_type": "OTHERS",
        "attach": "",
        "success_time": time,
        // Other names than in a single payment: that is how the platform has it.
        "amount": {
            "total_amount": sub.total_fen, "payer_amount": sub.total_fen, "currency": "CNY", "payer_currency": "CNY",
        },
    });
    if let Some(sub_mchid) = &sub.sub_mchid {
        value["sub_mchid"] = json!(sub_mchid);
    }
    value
}

fn summary(event_type: &str) -> &'static str {
    match event_type {
        "TRANSACTION.SUCCESS" => "支付成功",
        "REFUND.SUCCESS" => "退款成功",
        "REFUND.ABNORMAL" => "退款异常",
        "REFUND.CLOSED" => "退款关闭",
        "PROFITSHARING.SUCCESS" => "分账",
        "PROFITSHARING.RETURN" => "分账回退",
        "MCHTRANSFER.BILL.FINISHED" => "商家转账单据终态通知",
        _ => "通知",
    }
}

#[cfg(test)]
mod tests;
