//! Alipay (mainland) as seen from the merchant: form fields, RSA2 over the charset's bytes, signed gateway answers.
//!
//! Here: a second reading of the specification, independent of payonce's own, and only what the platform does right.
//! Not here: what it (or an attacker) does wrong (`faults`).

use super::{Notification, Platform};
use crate::keys::RsaKey;
use crate::message::{Request, Response};
use crate::text;
use encoding_rs::{Encoding, GBK, UTF_8};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde_json::Value;
use std::fmt;

/// Form fields in the order they are sent.
pub type Fields = Vec<(String, String)>;

/// In which bytes a notification is written and signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Charset {
    /// `charset=utf-8`.
    Utf8,
    /// `charset=GBK`, the historic default.
    Gbk,
}

impl Charset {
    /// The name as it stands in the `charset` field.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Gbk => "GBK",
        }
    }

    /// The bytes of a text. GBK has no place for rare characters; those become `&#…;`.
    #[must_use]
    pub fn bytes(self, text: &str) -> Vec<u8> {
        let encoding: &'static Encoding = match self {
            Self::Utf8 => UTF_8,
            Self::Gbk => GBK,
        };
        encoding.encode(text).0.into_owned()
    }
}

/// Which fields the signature covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signing {
    /// All but `sign` and `sign_type`: trade notifications.
    V1,
    /// All but `sign`: some messages of the application gateway.
    V2,
    /// As V1, and fields with an empty value are left out of the signed text (but not of the body).
    V1SkipEmpty,
    /// As V2, and fields with an empty value are left out of the signed text (but not of the body).
    V2SkipEmpty,
}

/// One app of one seller, with everything Alipay and the merchant hold for it.
#[derive(Clone)]
pub struct Alipay {
    /// The app that placed the orders.
    pub app_id: String,
    /// The seller's PID, `2088…`.
    pub seller_id: String,
    /// Alipay's key, whose public half (支付宝公钥) the merchant configures.
    pub key: RsaKey,
    /// The app's own key, which the merchant signs its requests with.
    pub app_key: RsaKey,
    /// Charset of notifications unless an event says otherwise.
    pub charset: Charset,
}

impl fmt::Debug for Alipay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alipay")
            .field("app_id", &self.app_id)
            .field("seller_id", &self.seller_id)
            .finish_non_exhaustive()
    }
}

impl Alipay {
    /// An app with fresh keys.
    #[must_use]
    pub fn new(app_id: impl Into<String>, seller_id: impl Into<String>) -> Self {
        let mut keys = RsaKey::generate_many(2).into_iter();
        let mut next = || keys.next().unwrap_or_else(RsaKey::generate);
        Self {
            app_id: app_id.into(),
            seller_id: seller_id.into(),
            key: next(),
            app_key: next(),
            charset: Charset::Utf8,
        }
    }

    /// The fields of a payment (TRADE_SUCCESS). Edit them freely (see [`set`], [`remove`]) before [`Alipay::notify`].
    #[must_use]
    pub fn payment(&self, out_trade_no: &str, trade_no: &str, yuan: &str) -> Fields {
        let now = text::now_unix();
        let mut fields = self.trade(out_trade_no, trade_no, yuan, "TRADE_SUCCESS");
        let bill = format!(r#"[{{"amount":"{yuan}","fundChannel":"ALIPAYACCOUNT"}}]"#);
        for (name, value) in [
            ("receipt_amount", yuan),
            ("invoice_amount", yuan),
            ("buyer_pay_amount", yuan),
            ("point_amount", "0.00"),
            ("fund_bill_list", &bill),
            ("gmt_create", &text::beijing_plain(now - 5)),
            ("gmt_payment", &text::beijing_plain(now - 1)),
        ] {
            set(&mut fields, name, value);
        }
        fields
    }

    /// The fields of the message that a trade can no longer be refunded (TRADE_FINISHED): the same payment once more.
    #[must_use]
    pub fn finished(&self, out_trade_no: &str, trade_no: &str, yuan: &str) -> Fields {
        let mut fields = self.payment(out_trade_no, trade_no, yuan);
        set(&mut fields, "trade_status", "TRADE_FINISHED");
        fields
    }

    /// The fields of an unpaid trade that was closed (TRADE_CLOSED without any payment or refund field).
    #[must_use]
    pub fn closed(&self, out_trade_no: &str, trade_no: &str, yuan: &str) -> Fields {
        let now = text::now_unix();
        let mut fields = self.trade(out_trade_no, trade_no, yuan, "TRADE_CLOSED");
        set(&mut fields, "gmt_create", &text::beijing_plain(now - 900));
        set(&mut fields, "gmt_close", &text::beijing_plain(now));
        fields
    }

    /// The fields of a refund notification. `total` stays the order's amount; `refund_fee` is what is refunded in all.
    /// `full` makes it TRADE_CLOSED with `gmt_close`, otherwise it is TRADE_SUCCESS once more.
    #[must_use]
    pub fn refund(
        &self,
        out_trade_no: &str,
        trade_no: &str,
        total: &str,
        refund_fee: &str,
        out_biz_no: Option<&str>,
        full: bool,
    ) -> Fields {
        let now = text::now_unix();
        let status = if full { "TRADE_CLOSED" } else { "TRADE_SUCCESS" };
        let mut fields = self.trade(out_trade_no, trade_no, total, status);
        set(&mut fields, "refund_fee", refund_fee);
        set(&mut fields, "gmt_create", &text::beijing_plain(now - 65));
        set(&mut fields, "gmt_payment", &text::beijing_plain(now - 60));
        set(&mut fields, "gmt_refund", &format!("{}.123", text::beijing_plain(now)));
        if let Some(number) = out_biz_no {
            set(&mut fields, "out_biz_no", number);
        }
        if full {
            set(&mut fields, "gmt_close", &text::beijing_plain(now));
        }
        fields
    }

    /// The fields of a message of the application gateway (From 蚂蚁), such as `alipay.fund.trans.order.changed`.
    #[must_use]
    pub fn message(&self, msg_method: &str, biz_content: &Value) -> Fields {
        let content = biz_content.to_string();
        let id = notify_id(&text::beijing_plain(text::now_unix()), &format!("{msg_method} {content}"));
        [
            ("notify_id", id.as_str()),
            ("utc_timestamp", ""),
            ("msg_method", msg_method),
            ("app_id", &self.app_id),
            ("version", "1.1"),
            ("biz_content", &content),
            ("charset", ""),
            ("sign_type", "RSA2"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    /// An event of these fields, in the app's charset, signed as V1.
    #[must_use]
    pub fn notify(&self, fields: Fields) -> Event {
        Event { fields, charset: self.charset, signing: Signing::V1, shuffle: false, alipay: self.clone() }
    }

    /// A signed gateway answer: the node is `<method with _>_response`, and the signature covers its raw text.
    #[must_use]
    pub fn answer(&self, method: &str, node: &Value) -> Response {
        self.answer_raw(method, &node.to_string())
    }

    /// As [`Alipay::answer`], with the node's text exactly as given (member order, `\/` and all).
    #[must_use]
    pub fn answer_raw(&self, method: &str, node: &str) -> Response {
        let sign = self.key.sign_sha256(&self.charset.bytes(node));
        self.envelope(&format!(r#"{{"{}":{node},"sign":"{sign}"}}"#, node_name(method)))
    }

    /// A gateway answer without signature, as some errors come.
    #[must_use]
    pub fn answer_unsigned(&self, method: &str, node: &Value) -> Response {
        self.envelope(&format!(r#"{{"{}":{node}}}"#, node_name(method)))
    }

    /// The signed answer of `alipay.trade.query`: the given members beside `code` 10000.
    #[must_use]
    pub fn query_answer(&self, members: &Value) -> Response {
        let mut node = serde_json::json!({ "code": "10000", "msg": "Success" });
        merge(&mut node, members);
        self.answer("alipay.trade.query", &node)
    }

    /// A signed business failure (code 40004), such as `ACQ.TRADE_NOT_EXIST`.
    #[must_use]
    pub fn error_answer(&self, method: &str, sub_code: &str) -> Response {
        let node = serde_json::json!({
            "code": "40004", "msg": "Business Failed", "sub_code": sub_code, "sub_msg": "业务处理失败",
        });
        self.answer(method, &node)
    }

    /// Checks a merchant's gateway request by its decoded parameters (URL query and body together).
    ///
    /// # Errors
    /// Says what is wrong with it: app, algorithm or signature.
    pub fn check_request(&self, params: &[(String, String)]) -> Result<(), String> {
        if get(params, "app_id") != Some(&self.app_id) {
            return Err("app_id is missing or another app's".into());
        }
        if get(params, "sign_type") != Some("RSA2") {
            return Err("sign_type is not RSA2".into());
        }
        let text = signed_text(params, Charset::Utf8, Signing::V2SkipEmpty);
        let sign = get(params, "sign").ok_or("sign is missing")?;
        if self.app_key.verify(&text, sign) { Ok(()) } else { Err("sign is wrong".into()) }
    }

    /// What every trade notification has, with a notification id that depends on what happened alone.
    fn trade(&self, out_trade_no: &str, trade_no: &str, total: &str, trade_status: &str) -> Fields {
        let now = text::now_unix();
        let buyer = format!("2088{}", text::digits_of(out_trade_no, 12));
        [
            ("notify_time", ""),
            ("notify_type", "trade_status_sync"),
            ("app_id", self.app_id.as_str()),
            ("auth_app_id", &self.app_id),
            ("charset", ""),
            ("version", "1.0"),
            ("sign_type", "RSA2"),
            ("trade_no", trade_no),
            ("out_trade_no", out_trade_no),
            ("buyer_id", &buyer),
            ("buyer_logon_id", "138****0000"),
            ("seller_id", &self.seller_id),
            ("seller_email", "seller@example.com"),
            ("trade_status", trade_status),
            ("total_amount", total),
            ("subject", "测试+订单 50%"),
            ("gmt_create", &text::beijing_plain(now)),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    fn envelope(&self, body: &str) -> Response {
        let kind = format!("text/html;charset={}", self.charset.name());
        Response { status: 200, headers: vec![("Content-Type".into(), kind)], body: self.charset.bytes(body) }
    }
}

/// One event at Alipay, sent until somebody takes it. All parts may be edited before it is sent.
#[derive(Clone, Debug)]
pub struct Event {
    /// The form fields. `notify_time` (or `utc_timestamp`) and `charset` are filled at each delivery where present,
    /// `sign` is appended; `notify_id` is made up from the rest if it is missing.
    pub fields: Fields,
    /// In which bytes it is written.
    pub charset: Charset,
    /// What the signature covers.
    pub signing: Signing,
    /// Send the fields in another order each time; the platform promises none.
    pub shuffle: bool,
    /// Who sends it, with its keys. Faults put other keys here.
    pub alipay: Alipay,
}

impl Event {
    /// One delivery at `now`: `notify_time` is set and everything signed anew.
    #[must_use]
    pub fn send(&self, now_unix: i64) -> Request {
        self.send_with(now_unix, &mut rand::rng())
    }

    /// One delivery with chance (the order of fields, if it is to change) from `rng`.
    #[must_use]
    pub fn send_with(&self, now_unix: i64, rng: &mut impl Rng) -> Request {
        let mut fields = self.fields_at(now_unix);
        if self.shuffle {
            fields.shuffle(rng);
        }
        let sign = self.alipay.key.sign_sha256(&signed_text(&fields, self.charset, self.signing));
        fields.push(("sign".into(), sign));
        let kind = format!("application/x-www-form-urlencoded; charset={}", self.charset.name());
        let headers = vec![("User-Agent".into(), "Mozilla/4.0".into()), ("Content-Type".into(), kind)];
        Request { headers, body: form_body(&fields, self.charset) }
    }

    /// The stable notification id.
    #[must_use]
    pub fn notify_id(&self) -> String {
        match get(&self.fields, "notify_id") {
            Some(id) => id.to_owned(),
            None => {
                let volatile = ["notify_time", "charset", "sign"];
                let lasting = self.fields.iter().filter(|(name, _)| !volatile.contains(&name.as_str()));
                let what: String = lasting.map(|(name, value)| format!("{name}={value}&")).collect();
                let moments = ["gmt_refund", "gmt_close", "gmt_payment", "gmt_create"];
                let moment = moments.iter().find_map(|name| get(&self.fields, name));
                notify_id(moment.unwrap_or_default(), &what)
            }
        }
    }

    fn fields_at(&self, now: i64) -> Fields {
        let mut fields = self.fields.clone();
        remove(&mut fields, "sign");
        let fresh = [
            ("notify_time", text::beijing_plain(now)),
            ("utc_timestamp", format!("{now}000")),
            ("charset", self.charset.name().to_owned()),
        ];
        for (name, value) in fresh {
            if get(&fields, name).is_some() {
                set(&mut fields, name, &value);
            }
        }
        if get(&fields, "notify_id").is_none() {
            fields.push(("notify_id".into(), self.notify_id()));
        }
        fields
    }
}

impl Notification for Event {
    fn platform(&self) -> Platform {
        Platform::Alipay
    }

    fn id(&self) -> String {
        self.notify_id()
    }

    fn request(&self, now: i64, rng: &mut StdRng) -> Request {
        self.send_with(now, rng)
    }
}

/// What Alipay signs: fields sorted by name, `name=value` joined with `&`, values unescaped, in the charset's bytes.
#[must_use]
pub fn signed_text(fields: &[(String, String)], charset: Charset, signing: Signing) -> Vec<u8> {
    let without_type = matches!(signing, Signing::V1 | Signing::V1SkipEmpty);
    let without_empty = matches!(signing, Signing::V1SkipEmpty | Signing::V2SkipEmpty);
    let mut signed: Vec<&(String, String)> = fields
        .iter()
        .filter(|(name, _)| name != "sign" && !(without_type && name == "sign_type"))
        .filter(|(_, value)| !(without_empty && value.is_empty()))
        .collect();
    // By name and not by the finished pair: the two differ when one name is the beginning of another.
    signed.sort_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
    let pairs: Vec<String> = signed.iter().map(|(name, value)| format!("{name}={value}")).collect();
    charset.bytes(&pairs.join("&"))
}

/// The form body of these fields in their order.
#[must_use]
pub fn form_body(fields: &[(String, String)], charset: Charset) -> Vec<u8> {
    let mut out = String::new();
    for (at, (name, value)) in fields.iter().enumerate() {
        if at > 0 {
            out.push('&');
        }
        text::form_encode(&charset.bytes(name), &mut out);
        out.push('=');
        text::form_encode(&charset.bytes(value), &mut out);
    }
    out.into_bytes()
}

/// Takes a form body apart again; the values are read as UTF-8 or GBK.
#[must_use]
pub fn parse_form(body: &[u8], charset: Charset) -> Fields {
    let read = |bytes: &[u8]| {
        let bytes = text::form_decode(bytes);
        match charset {
            Charset::Utf8 => String::from_utf8_lossy(&bytes).into_owned(),
            Charset::Gbk => GBK.decode_without_bom_handling(&bytes).0.into_owned(),
        }
    };
    body.split(|&byte| byte == b'&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| {
            let at = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
            (read(&pair[..at]), read(pair.get(at + 1..).unwrap_or_default()))
        })
        .collect()
}

/// A field's value.
#[must_use]
pub fn get<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
}

/// Replaces a field's value, or appends the field.
pub fn set(fields: &mut Fields, name: &str, value: &str) {
    match fields.iter_mut().find(|(have, _)| have == name) {
        Some((_, old)) => value.clone_into(old),
        None => fields.push((name.to_owned(), value.to_owned())),
    }
}

/// Takes a field out.
pub fn remove(fields: &mut Fields, name: &str) {
    fields.retain(|(have, _)| have != name);
}

/// 34 digits like today's ids: the event's date, a group, its time, more digits.
fn notify_id(moment: &str, name: &str) -> String {
    let moment: String = moment.chars().filter(char::is_ascii_digit).chain("0".repeat(14).chars()).take(14).collect();
    format!("{}00222{}{}", &moment[..8], &moment[8..], text::digits_of(name, 15))
}

fn node_name(method: &str) -> String {
    format!("{}_response", method.replace('.', "_"))
}

fn merge(node: &mut Value, members: &Value) {
    if let (Some(node), Some(members)) = (node.as_object_mut(), members.as_object()) {
        for (name, value) in members {
            node.insert(name.clone(), value.clone());
        }
    }
}

#[cfg(test)]
mod tests;
