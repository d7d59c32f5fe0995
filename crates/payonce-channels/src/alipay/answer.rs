//! What Alipay answered to a query of an order or of a refund.
//!
//! Here: the signature over the raw bytes of one member, and reading `alipay.trade.query` and
//! `alipay.trade.fastpay.refund.query` from it; orders also in the v3 form (header signature, flat body).
//! Not here: asking (the server). opendocs.alipay.com/open/02ivbt
//!
//! A failed, unsigned or undecided answer means "not known", never "unpaid" (F061): it is a belief without
//! facts. A success without a right signature is a rejection.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use encoding_rs::GBK;
use payonce::{
    channel::{Answer, Bearing, Belief, HeaderError, Reason, Rejection},
    ids::TradeNo,
    money::{Currency, Money},
    notice::{Fact, Notice, Source},
};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{
    keys::TrustedKeys,
    node,
    payload::{Owner, Reading, TRADE_CLOSED, TRADE_FINISHED, TRADE_SUCCESS, WAIT_BUYER_PAY, refund_number, unusable},
};
use crate::{
    text::{self, lenient_json, missing, quote, string},
    times,
};

/// Which query it answers, by the name of its outermost member. Gateway-level errors are wrapped in a name of
/// their own.
const ROOTS: [(&[u8], Query); 3] = [
    (b"alipay_trade_query_response", Query::Order),
    (b"alipay_trade_fastpay_refund_query_response", Query::Refund),
    (b"error_response", Query::Failed),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Query {
    Order,
    Refund,
    Failed,
}

/// The only `refund_status`; a refund that has not arrived or failed has none (facts 6.5).
const REFUND_SUCCESS: &str = "REFUND_SUCCESS";
const SIGN: &[u8] = b"sign";

/// The call succeeded; for a query that says nothing about the payment (opendocs.alipay.com/common/02km9f).
const CODE_SUCCESS: &str = "10000";

/// Signature headers of v3 answers (facts 6.6).
const V3_SIGNATURE: &str = "alipay-signature";
const V3_TIMESTAMP: &str = "alipay-timestamp";
const V3_NONCE: &str = "alipay-nonce";

const RULE_GATEWAY: &str = "gateway response";
const RULE_V3: &str = "v3 response";

/// Answers have a few KB.
const MAX_BODY: usize = 1024 * 1024;

/// Members that identify the payment are errors if they stand twice; those that inform may be any JSON.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Trade {
    code: Option<Value>,
    msg: Option<Value>,
    sub_code: Option<Value>,
    trade_status: Option<Value>,
    out_trade_no: Option<Value>,
    trade_no: Option<Value>,
    total_amount: Option<Value>,
    send_pay_date: Option<Value>,
    out_request_no: Option<Value>,
    refund_amount: Option<Value>,
    refund_status: Option<Value>,
    gmt_refund_pay: Option<Value>,
    receipt_amount: Option<Value>,
    buyer_pay_amount: Option<Value>,
    invoice_amount: Option<Value>,
    point_amount: Option<Value>,
    passback_params: Option<Value>,
    subject: Option<Value>,
}

/// Reads an answer of either form.
pub(super) fn believe(answer: &Answer, keys: &TrustedKeys, owner: &Owner<'_>) -> Result<Belief, Rejection> {
    if !(200..300).contains(&answer.status) {
        return Ok(unknown(&format!("http {}{}", answer.status, error_word(&answer.body))));
    }
    if answer.body.len() > MAX_BODY {
        return Err(Rejection::new(Reason::Malformed, format!("a body of {} bytes", answer.body.len())));
    }
    match answer.headers.one(V3_SIGNATURE) {
        Err(HeaderError::Missing) => gateway(&answer.body, keys, owner),
        signature => v3(answer, signature, keys, owner),
    }
}

fn gateway(body: &[u8], keys: &TrustedKeys, owner: &Owner<'_>) -> Result<Belief, Rejection> {
    let members = node::members(body).map_err(|error| Rejection::new(Reason::Malformed, error.why()))?;
    let value = |wanted: &[u8]| members.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
    let mut roots = ROOTS.iter().filter_map(|(name, query)| Some((value(name)?, *query)));
    let (Some((root, query)), None) = (roots.next(), roots.next()) else {
        return Err(Rejection::new(Reason::Malformed, "not one answer to an order or refund query"));
    };
    let failed = || {
        let trade = parse(root).ok()?;
        (query == Query::Failed || string(&trade.code) != Some(CODE_SUCCESS)).then_some(trade)
    };
    let Some(sign) = value(SIGN) else {
        // Some errors come without a signature. They decide nothing, so they may be told.
        return failed()
            .map(|trade| unknown(&format!("unsigned {}", words(&trade))))
            .ok_or_else(|| Rejection::new(Reason::SignatureParts, "sign: missing"));
    };
    let sign: String =
        serde_json::from_slice(sign).map_err(|_| Rejection::new(Reason::SignatureParts, "sign: no text"))?;
    let key_id = signer(root, &sign, keys)?;
    let reading = match query {
        Query::Failed => parse(root).map(|trade| undecided(&words(&trade))),
        Query::Order | Query::Refund => coded(root, query, owner),
    };
    belief(reading, key_id, RULE_GATEWAY)
}

/// `timestamp LF nonce LF body LF`. No window: what is known of v3 gives none, and we asked over TLS.
fn v3(
    answer: &Answer,
    signature: Result<&str, HeaderError>,
    keys: &TrustedKeys,
    owner: &Owner<'_>,
) -> Result<Belief, Rejection> {
    let part = |name: &str, value: Result<&str, HeaderError>| {
        value.map(str::to_owned).map_err(|error| Rejection::new(Reason::SignatureParts, format!("{name}: {error:?}")))
    };
    let signature = part(V3_SIGNATURE, signature)?;
    let mut message = Vec::with_capacity(answer.body.len() + 128);
    for name in [V3_TIMESTAMP, V3_NONCE] {
        message.extend_from_slice(part(name, answer.headers.one(name))?.as_bytes());
        message.push(b'\n');
    }
    message.extend_from_slice(&answer.body);
    message.push(b'\n');
    let key_id = signer(&message, &signature, keys)?;
    belief(parse(&answer.body).and_then(|trade| order(&trade, owner)), key_id, RULE_V3)
}

fn signer<'k>(message: &[u8], sign: &str, keys: &'k TrustedKeys) -> Result<&'k str, Rejection> {
    let signature = STANDARD.decode(sign).map_err(|_| Rejection::new(Reason::Signature, "sign: not base64"))?;
    keys.signer(message, &signature)
        .ok_or_else(|| Rejection::new(Reason::Signature, "verifies with none of the configured Alipay public keys"))
}

fn belief(reading: Result<Reading, Rejection>, key_id: &str, rule: &'static str) -> Result<Belief, Rejection> {
    let (notices, bearing) = reading.map_err(|rejection| rejection.verified_by(key_id))?;
    Ok(Belief { notices, bearing, key_id: key_id.to_owned(), rule })
}

fn unknown(word: &str) -> Belief {
    Belief { notices: Vec::new(), bearing: Bearing::NotFinal(word.into()), key_id: String::new(), rule: "unsigned" }
}

fn undecided(word: &str) -> Reading {
    (Vec::new(), Bearing::NotFinal(word.into()))
}

/// In the classic form success is said by a code; in v3 by the HTTP status.
fn coded(node: &[u8], query: Query, owner: &Owner<'_>) -> Result<Reading, Rejection> {
    if node.starts_with(b"\"") {
        let what = "an encrypted answer; interface content encryption is not supported";
        return Err(Rejection::new(Reason::Undecryptable, what));
    }
    let trade = parse(node)?;
    match query {
        _ if string(&trade.code) != Some(CODE_SUCCESS) => Ok(undecided(&words(&trade))),
        Query::Refund => refund(&trade, owner),
        Query::Order | Query::Failed => order(&trade, owner),
    }
}

fn order(trade: &Trade, owner: &Owner<'_>) -> Result<Reading, Rejection> {
    let status = string(&trade.trade_status).ok_or_else(|| missing("trade_status"))?;
    let paid_at = string(&trade.send_pay_date);
    let notice = match status {
        WAIT_BUYER_PAY => return Ok(undecided(status)),
        TRADE_SUCCESS | TRADE_FINISHED => payment(trade, owner)?,
        // Fully refunded or never paid: the payment time tells (facts 6.4). What was refunded is the refund
        // query's to say.
        TRADE_CLOSED if paid_at.is_some() => payment(trade, owner)?,
        TRADE_CLOSED => owner.notice(number("out_trade_no", &trade.out_trade_no)?, Fact::Closed, Source::Query)?,
        unknown => {
            return Err(Rejection::new(Reason::UnknownState, format!("trade_status: {}", quote(unknown))));
        }
    };
    Ok((vec![notice], Bearing::Facts))
}

fn payment(trade: &Trade, owner: &Owner<'_>) -> Result<Notice, Rejection> {
    let trade_no = number("trade_no", &trade.trade_no)?;
    let total = string(&trade.total_amount).ok_or_else(|| missing("total_amount"))?;
    let mut notice = owner.notice(number("out_trade_no", &trade.out_trade_no)?, Fact::Payment, Source::Query)?;
    notice.trade_no = Some(TradeNo::new(trade_no).map_err(|error| unusable("trade_no", &error))?);
    notice.money = Some(Money::from_decimal(total, Currency::CNY).map_err(|error| unusable("total_amount", &error))?);
    notice.occurred_at = string(&trade.send_pay_date).and_then(times::read);
    notice.channel_data = data(trade);
    Ok(notice)
}

/// What a notification does not say: the refund's own amount (F087).
fn refund(trade: &Trade, owner: &Owner<'_>) -> Result<Reading, Rejection> {
    match string(&trade.refund_status) {
        Some(REFUND_SUCCESS) => {}
        None => return Ok(undecided("refund not done")),
        Some(other) => {
            return Err(Rejection::new(Reason::UnknownState, format!("refund_status: {}", quote(other))));
        }
    }
    let out_trade_no = number("out_trade_no", &trade.out_trade_no)?;
    let trade_no = number("trade_no", &trade.trade_no)?;
    let given = trade.out_request_no.as_ref().map(|_| number("out_request_no", &trade.out_request_no)).transpose()?;
    let refund_no = refund_number(given, &trade_no, &out_trade_no);
    let amount = string(&trade.refund_amount).ok_or_else(|| missing("refund_amount"))?;
    let mut notice = owner.notice(out_trade_no, Fact::Refund { refund_no, full: false }, Source::Query)?;
    notice.trade_no = Some(TradeNo::new(trade_no).map_err(|error| unusable("trade_no", &error))?);
    notice.money = Some(Money::from_decimal(amount, Currency::CNY).map_err(|error| unusable("refund_amount", &error))?);
    notice.occurred_at = string(&trade.gmt_refund_pay).and_then(times::read);
    Ok((vec![notice], Bearing::Facts))
}

/// The same names as in notifications.
fn data(trade: &Trade) -> Map<String, Value> {
    [
        ("trade_status", &trade.trade_status),
        ("receipt_amount", &trade.receipt_amount),
        ("buyer_pay_amount", &trade.buyer_pay_amount),
        ("invoice_amount", &trade.invoice_amount),
        ("point_amount", &trade.point_amount),
        ("passback_params", &trade.passback_params),
        ("subject", &trade.subject),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name.to_owned(), Value::String(string(value)?.to_owned()))))
    .collect()
}

fn number(field: &str, value: &Option<Value>) -> Result<String, Rejection> {
    text::number(field, string(value).unwrap_or_default()).map(str::to_owned)
}

/// After the signature. Bytes that are no UTF-8 are read as GBK: error texts are, now and then.
fn parse(node: &[u8]) -> Result<Trade, Rejection> {
    let text: Cow<'_, str> = match std::str::from_utf8(node) {
        Ok(_) => lenient_json(node),
        Err(_) => GBK.decode_without_bom_handling(node).0,
    };
    serde_json::from_str(&text).map_err(|error| {
        let what = error.to_string();
        let reason = if what.starts_with("duplicate field") { Reason::Ambiguous } else { Reason::MissingField };
        Rejection::new(reason, format!("answer: {}", quote(&what)))
    })
}

/// `40004 ACQ.TRADE_NOT_EXIST`, as far as it is there.
fn words(trade: &Trade) -> String {
    let code = string(&trade.code).unwrap_or("-");
    let more = string(&trade.sub_code).or_else(|| string(&trade.msg)).unwrap_or_default();
    quote(format!("{code} {more}").trim_end())
}

/// v3 errors are `{"code": …, "message": …}` with an HTTP status of 400 and above.
fn error_word(body: &[u8]) -> String {
    let code = serde_json::from_slice::<Trade>(body).ok().and_then(|error| string(&error.code).map(quote));
    code.map(|code| format!(" {code}")).unwrap_or_default()
}
